"""Options of the import: shapes, values, cut points and other choices of the user."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from intaglio import dtypes as element_types
from intaglio.arguments import by_name, described, extents, file_path, list_of_names, whole_number
from intaglio.errors import BadInput, did_you_mean, option
from intaglio.frontends.ranges import with_ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Options of `intaglio.load` that every frontend gets; each reads those its format has.

    They are checked when they are made, so that a wrong type is never taken for a damaged file.
    """

    # Shapes by input name. They replace the shapes of the file. An extent may be a range: "1..8",
    # "64..640:32" for multiples of 32. Ranges become SymInts.
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    # Extents of symbolic dimensions by symbol, or their ranges: {"batch": 1, "seq": "1..512"}. ONNX
    # and PyTorch.
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

    def __post_init__(self) -> None:
        self._check_shapes()
        by_name("values", self.values, "names of inputs to their values", {"k": 5})
        self._check_dtypes()
        if self.inputs is not None:
            list_of_names("inputs", self.inputs)
        if self.outputs is not None:
            list_of_names("outputs", self.outputs, least=1)
        for name in ("state", "allow_large"):
            if not isinstance(getattr(self, name), bool):
                raise BadInput(f"{name} is {described(getattr(self, name))}; give True or False")
        if self.signature is not None and not isinstance(self.signature, str):
            raise BadInput(f"signature is {described(self.signature)}; give the name of one")
        if self.weights is not None:
            file_path(option("weights"), self.weights, option("weights", "yolov3.weights"))

    def at(self, shapes: Mapping[str, tuple[int, ...]]) -> ImportOptions:
        """These options with the shapes of arrays, which may be empty."""
        result = copy.copy(self)
        object.__setattr__(result, "shapes", {**self.shapes, **shapes})
        return result

    def _check_shapes(self) -> None:
        shown = self.shapes if _is_shape(self.shapes) else (1, 3, 224, 224)
        by_name("shapes", self.shapes, "names of inputs to shapes", {"input": tuple(shown)})
        by_name("dims", self.dims, "names of open dimensions to extents", {"batch": 1})
        shapes, dims = with_ranges(self.shapes, self.dims)
        object.__setattr__(self, "shapes", shapes)
        object.__setattr__(self, "dims", dims)
        for name, shape in shapes.items():
            results = extents(f"the shape of '{name}'", shape, least=0)
            whole_number(f"the first extent of '{name}', its batch,", (*results, 1)[0], least=1)
        for name, extent in dims.items():  # only a past sequence may be empty
            is_batch = "batch" in name.lower() or name.lower() in ("n", "b", "bs")
            whole_number(f"dimension '{name}'", extent, least=int(is_batch))

    def _check_dtypes(self) -> None:
        by_name("dtypes", self.dtypes, "names of inputs to element types", {"ids": "i64"})
        for name, kind in self.dtypes.items():
            if not isinstance(kind, str) or kind not in element_types.TABLE:
                known = ", ".join(element_types.TABLE)
                raise BadInput(
                    f"element type {kind!r} of input '{name}' is not one of {known}; change "
                    f"{option('dtypes', {name: kind})}"
                )


def _is_shape(given: Any) -> bool:
    """Whether a caller gave a shape without the name of its input."""
    return isinstance(given, tuple | list) and all(type(d) is int for d in given)


def refuse_unknown_dims(format: str, options: ImportOptions, symbols: Collection[str]) -> None:
    """BadInput if `dims` names a dimension that the model does not leave open."""
    for name, extent in options.dims.items():
        if name in symbols:
            continue
        given = option("dims", {name: int(extent)})
        if not symbols:
            raise BadInput(
                f"{format}: the model has no open dimension '{name}': all its dimensions are fixed "
                f"or have no name; leave {given} out, or give whole shapes with {option('shapes')}"
            )
        raise BadInput(
            f"{format}: the model has no open dimension '{name}'; it has "
            f"{', '.join(sorted(symbols))}{did_you_mean(name, symbols)}"
        )


NO_OPTIONS = ImportOptions()
