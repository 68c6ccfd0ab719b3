"""onnxsim.simplify, if the package onnxsim is not installed: Intaglio's own optimiser."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import intaglio
from intaglio.errors import IntaglioError
from intaglio.export.onnx import to_onnx

__version__ = "0.4.36"
EXACT_LEVEL = 1  # of the optimiser: results stay the same


def simplify(
    model: Any,
    check_n: int = 0,
    perform_optimization: bool = True,
    skip_fuse_bn: bool = False,
    overwrite_input_shapes: Mapping[str, Sequence[int]] | None = None,
    test_input_shapes: Mapping[str, Sequence[int]] | None = None,
    skipped_optimizers: Any = None,
    skip_constant_folding: bool = False,
    skip_shape_inference: bool = False,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    **others: Any,
) -> tuple[Any, bool]:
    """The model with fixed input shapes and constants folded, and whether it is valid.

    A model that Intaglio cannot read is returned as it is.
    """
    import onnx

    given = onnx.load(os.fspath(model)) if isinstance(model, str | os.PathLike) else model
    shapes = {k: list(v) for k, v in (overwrite_input_shapes or input_shapes or {}).items()}
    try:
        graph = intaglio.load(given, shapes=shapes)
        made = to_onnx(intaglio.optimize(graph, level=EXACT_LEVEL))
        onnx.checker.check_model(made)
    except (IntaglioError, onnx.checker.ValidationError) as e:
        print(f"onnxsim: the model stays as it is: {' '.join(str(e).split())}")
        return given, True
    return onnx.shape_inference.infer_shapes(made), True
