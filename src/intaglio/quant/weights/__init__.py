"""Weights as integers: scales, rounding (to nearest, SQuant, or fitted to the second moments of a
layer's inputs), bias correction, and rescaling of channels before rounding (cross-layer
equalisation between convolutions, smoothing after norms).
"""
