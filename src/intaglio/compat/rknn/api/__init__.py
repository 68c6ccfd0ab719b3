"""`rknn.api`: the class RKNN."""

from __future__ import annotations

from intaglio.compat.rknn.toolkit import RKNN as RKNN

__all__ = ["RKNN"]
