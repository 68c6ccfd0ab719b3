"""Graphs on which each rule fires: one line or more per rule, named for it."""

from tests.passes.cases import canonical, fold, fuse, integer, recognize
from tests.passes.cases.build import CASES, graph_of

__all__ = ["CASES", "canonical", "fold", "fuse", "graph_of", "integer", "recognize"]
