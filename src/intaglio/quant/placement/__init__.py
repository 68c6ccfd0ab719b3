"""Placement: which layers compute in integers and which tensors are quantised for them, in which
number format, as the target allows and as the user's scheme asks; special cases (concatenations of
unlike ranges, inputs of depthwise convolutions, f16 overflow); and inserting the quantize and
dequantize nodes (QDQ) that say so in the graph.
"""
