"""`rknnlite.api`: the class RKNNLite."""

from __future__ import annotations

from intaglio.compat.rknn.lite import RKNNLite as RKNNLite

__all__ = ["RKNNLite"]
