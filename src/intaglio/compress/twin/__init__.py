"""The twin of a graph: a `torch.nn.Module` whose forward is the graph's own arithmetic.

A float graph becomes a float module. A quantised graph becomes a module that computes what the
target computes: integers (as whole numbers in f32), one f32 factor per rounding, round half to
even, clamp. Training changes weights, biases and scales; `to_graph` puts them back, and `verify`
compares the result with the interpreter byte for byte.
"""

from __future__ import annotations

from intaglio.compress.twin.module import Twin as Twin
from intaglio.compress.twin.verify import differences as differences
from intaglio.compress.twin.verify import verify as verify

__all__ = ["Twin", "differences", "verify"]
