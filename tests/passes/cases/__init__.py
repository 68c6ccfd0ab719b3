"""Graphs on which each rule fires: at least one case per rule, with the rule's name."""

from tests.passes.cases import (
    attention,
    canonical,
    channel_norms,
    code_motion,
    cpu,
    depthwise,
    dynamic,
    fold,
    fuse,
    int8,
    integer,
    merge_linear,
    recognize,
    rectifiers,
    replace,
    shuffles,
    softmax,
)
from tests.passes.cases.build import CASES, graph_of

__all__ = [
    "CASES",
    "attention",
    "canonical",
    "channel_norms",
    "code_motion",
    "cpu",
    "depthwise",
    "dynamic",
    "fold",
    "fuse",
    "graph_of",
    "int8",
    "integer",
    "merge_linear",
    "recognize",
    "rectifiers",
    "replace",
    "shuffles",
    "softmax",
]
