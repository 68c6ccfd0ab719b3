"""Quantisation that needs no calibration: weight-only integers (8 or 4 bits, in groups), dynamic
int8 whose activations are quantised row by row at run time, and LSTMs and GRUs in dynamic int8.
"""
