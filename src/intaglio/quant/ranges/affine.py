"""Scale and zero point of a range."""

from __future__ import annotations

import numpy as np

from intaglio import dtypes
from intaglio.quant.placement.scheme import TensorScheme

# Shares of the weights' range at which clipping is tried, by bits: fewer bits gain more by it.
CLIPS = {8: np.linspace(1, 0.8, 6, dtype=np.float32), 4: np.linspace(1, 0.5, 26, dtype=np.float32)}


def affine(lo: float, hi: float, dtype: str = "i8", symmetric: bool = False) -> TensorScheme:
    """The scheme that covers the range and represents 0 exactly."""
    lo, hi = min(lo, 0.0), max(hi, 0.0)
    first, last = dtypes.limits(dtype)
    if symmetric:
        hi = max(-lo, hi)
        lo, zero = -hi, (first + last + 1) // 2
        scale = np.float32(hi / (last - zero))
    else:
        scale = np.float32((hi - lo) / (last - first))
    if not scale > np.finfo(np.float32).tiny:  # a tensor of zeros: any scale will do
        return TensorScheme(dtype, (1.0,), (zero if symmetric else 0,), lo=lo, hi=hi)
    if not symmetric:
        zero = int(np.clip(np.rint(first - lo / float(scale)), first, last))
    return TensorScheme(dtype, (float(scale),), (zero,), lo=lo, hi=hi)
