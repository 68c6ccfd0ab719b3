"""Ranges of activations: run the model on samples, observe every tensor (extremes,
histogram, channel means), choose a range by minmax, percentile, KL divergence or squared error,
widen it by headroom, and turn it into a scale and a zero point.
"""
