"""Options of the import: shapes, values, cut points and other choices of the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Options of `intaglio.load` that every frontend gets; each reads those its format has."""

    # Shapes by input name. They replace the shapes of the file.
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    # Extents of symbolic dimensions by symbol: {"batch": 1}. ONNX and PyTorch.
    dims: Mapping[str, int] = field(default_factory=dict)
    # Values by input name: such an input becomes a constant. ONNX, PyTorch and TensorFlow.
    values: Mapping[str, Any] = field(default_factory=dict)
    # Tensors that become the graph's inputs. None: the model's own inputs.
    inputs: Sequence[str] | None = None
    # Tensors that become the graph's outputs. None: the model's own outputs.
    outputs: Sequence[str] | None = None
    # Element types by input name, for PyTorch and TensorFlow files that do not store them.
    dtypes: Mapping[str, str] = field(default_factory=dict)
    # Whether state becomes inputs and outputs of the graph. PyTorch and Darknet; always in TFLite.
    state: bool = False
    # Name of a signature of a SavedModel or a TFLite file.
    signature: str | None = None
    # Path of the second file of a Caffe or Darknet model, where the two have different names.
    weights: str | Path | None = None
    # Whether the model may take more memory and nodes than `frontends.limits` allows.
    allow_large: bool = False


NO_OPTIONS = ImportOptions()
