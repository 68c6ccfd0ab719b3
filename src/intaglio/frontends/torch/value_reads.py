"""Finds the places where a module reads the values of its inputs in Python.

`if x.sum() > 0`, `x.max().item()` and `x.numpy()` turn a tensor into a Python object. A trace keeps
the object of the example, so that the model would be wrong for other inputs. The module runs once
here; every tensor that is computed from an input is marked, and reads of marked tensors are noted.
"""

from __future__ import annotations

import linecache
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CONVERSIONS = {"numpy", "tolist", "__array__", "__dlpack__"}  # methods that leave PyTorch
SHAPES_ONLY = {"zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones"}
SHAPES_ONLY |= {"new_full", "new_empty", "sym_size", "sym_numel"}  # ops that read no values


@dataclass(frozen=True)
class Place:
    """A line of Python code."""

    file: str
    line: int
    function: str

    @property
    def code(self) -> str:
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        shown = f"{self.file}:{self.line} in {self.function}"
        return f"{shown}: `{self.code[:100]}`" if self.code else shown


@dataclass
class Reads:
    """Where a run of a module read values that depend on its inputs."""

    values: list[Place] = field(default_factory=list)  # as Python numbers, lists or arrays
    shapes: list[Place] = field(default_factory=list)  # made a tensor whose shape depends on them


def find_value_reads(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Reads:
    """Run the module once and note where it reads values that depend on `args` and `kwargs`."""
    calls, operators = _modes()
    found = Reads()
    marked: set[Any] = set()
    for t in _tensors([args, dict(kwargs)]):
        marked.add(_storage(t))
    with calls(found, marked), operators(found, marked):
        model(*args, **kwargs)
    return found


def _modes() -> tuple[Any, Any]:
    """The two interceptors: of Python calls, and of operators. They need PyTorch's classes."""
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Calls(TorchFunctionMode):  # type: ignore[misc]  # Any without PyTorch
        def __init__(self, found: Reads, marked: set[Any]):
            super().__init__()
            self.found, self.marked = found, marked

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):  # type: ignore[no-untyped-def]
            name = getattr(func, "__name__", "")
            if name in CONVERSIONS and _is_marked(args[:1], self.marked):
                _note(self.found.values)
            return func(*args, **(kwargs or {}))

    class Operators(TorchDispatchMode):  # type: ignore[misc]
        def __init__(self, found: Reads, marked: set[Any]):
            super().__init__()
            self.found, self.marked = found, marked

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):  # type: ignore[no-untyped-def]
            result = func(*args, **(kwargs or {}))
            name, tags = getattr(func, "_opname", ""), getattr(func, "tags", ())
            if name in SHAPES_ONLY or not _is_marked([args, kwargs or {}], self.marked):
                return result
            if torch.Tag.data_dependent_output in tags:
                _note(self.found.values)
            if torch.Tag.dynamic_output_shape in tags:
                _note(self.found.shapes)
            for t in (*_tensors([result]), *_written(func, args)):
                self.marked.add(_storage(t))
            return result

    return Calls, Operators


def _written(func: Any, args: Any) -> Iterator[Any]:
    """The tensors that an operator writes in place."""
    schema = getattr(func, "_schema", None)
    for argument, given in zip(schema.arguments if schema else (), args, strict=False):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from _tensors([given])


def _tensors(x: Any) -> Iterator[Any]:
    """The tensors in nested containers."""
    import torch
    from torch.utils import _pytree

    yield from (t for t in _pytree.tree_leaves(x) if isinstance(t, torch.Tensor))


def _storage(t: Any) -> Any:
    """A key of the tensor's memory: views of a marked tensor are marked."""
    from torch.multiprocessing.reductions import StorageWeakRef

    try:
        return StorageWeakRef(t.untyped_storage())
    except (NotImplementedError, RuntimeError):  # sparse tensors have no storage
        return id(t)


def _is_marked(x: Any, marked: set[Any]) -> bool:
    return any(_storage(t) in marked for t in _tensors(x))


def _note(places: list[Place]) -> None:
    place = place_of_caller()
    if place not in places:
        places.append(place)


def place_of_caller() -> Place:
    """The innermost line of the running module outside of PyTorch; of PyTorch if there is none."""
    torch = str(Path(sys.modules["torch"].__file__ or "").parent)
    frames = traceback.extract_stack()
    start = max(i for i, f in enumerate(frames) if f.name == find_value_reads.__name__)
    inside = [f for f in frames[start + 1 :] if f.filename != __file__]
    user = [f for f in inside if not f.filename.startswith((torch, "<"))]
    last = (user or inside)[-1]
    return Place(last.filename, last.lineno or 0, last.name)
