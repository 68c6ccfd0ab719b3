"""Quantisation: from a float model and calibration samples to a graph that computes in integers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from intaglio.quant.options import Options as Options
    from intaglio.quant.pipeline import STEPS as STEPS
    from intaglio.quant.pipeline import calibrate as calibrate
    from intaglio.quant.pipeline import quantize as quantize
    from intaglio.quant.placement.scheme import Override as Override
    from intaglio.quant.placement.scheme import Scheme as Scheme
    from intaglio.quant.placement.scheme import TensorScheme as TensorScheme
    from intaglio.quant.result import Quantized as Quantized
    from intaglio.quant.search.policy import Policy as Policy
    from intaglio.quant.search.strategies import auto as auto
    from intaglio.quant.search.strategies import until as until
    from intaglio.quant.weight_only.datafree import without_data as without_data

# public name -> the module that has it, imported when first used
_LAZY = {
    "Options": "intaglio.quant.options",
    "Override": "intaglio.quant.placement.scheme",
    "Policy": "intaglio.quant.search.policy",
    "Quantized": "intaglio.quant.result",
    "Scheme": "intaglio.quant.placement.scheme",
    "TensorScheme": "intaglio.quant.placement.scheme",
    "auto": "intaglio.quant.search.strategies",
    "STEPS": "intaglio.quant.pipeline",
    "calibrate": "intaglio.quant.pipeline",
    "quantize": "intaglio.quant.pipeline",
    "until": "intaglio.quant.search.strategies",
    "without_data": "intaglio.quant.weight_only.datafree",
}
__all__ = list(_LAZY)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'intaglio.quant' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
