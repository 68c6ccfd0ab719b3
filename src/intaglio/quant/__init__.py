"""Quantisation: from a float model and samples to integers that keep its accuracy."""
