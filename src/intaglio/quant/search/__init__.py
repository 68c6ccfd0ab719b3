"""Decisions by trial: run the model with simulated rounding, compare its outputs with the float
model's, and choose range methods and the layers that keep a wider format (mixed precision); and
the search over whole strategies.
"""
