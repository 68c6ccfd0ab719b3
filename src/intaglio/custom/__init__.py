"""Custom operators: in Python, in C, or in both.

from intaglio import custom

@custom.register
class SoftClip:
    name = "acme.soft_clip"
    onnx = "acme.ops::SoftClip"

    def shape(self, x, *, limit=1.0):
        return x.shape

    def compute(self, x, *, limit=1.0):
        return np.tanh(x / limit) * limit

custom.load("./libacme.so")        # or kernels in C: csrc/include/intaglio_plugin.h

docs/custom-operators.md explains both.
"""

from __future__ import annotations

from typing import TypeVar

from intaglio.custom import table
from intaglio.custom.definition import Definition, define
from intaglio.custom.definition import Operand as Operand
from intaglio.custom.discover import load as load
from intaglio.custom.discover import look_again
from intaglio.custom.plugin import include as include
from intaglio.errors import BadInput, did_you_mean
from intaglio.ir import Type as Type
from intaglio.ops.registry import CUSTOM_NAMES, Op

T = TypeVar("T")


def register(operator: T) -> T:
    """Register a custom operator, a class or an object; usable as a decorator.

    Required are `name`, with a prefix of its own, and the methods `shape` and `compute`. Both take
    the inputs as positional parameters (`= None`: optional, `*xs`: any number) and the attributes
    as keyword-only ones. `shape` gets an `Operand` for each input and returns the shape of the
    result, a pair of element type and shape, or a list of these for several results. `compute` gets
    numpy arrays, and returns an array or a list of arrays. The arrays are views of a session's
    memory: copy what you keep.

    Optional are: `onnx`, `tflite` and `torch`, its names in these formats
    (`onnx = "acme.ops::SoftClip"`); `quantize`, "float" (default) or "like input" if every value of
    the result is one of the first input, so that it can run on integers; `elementwise = True` if
    element i of the result depends on elements i of the inputs alone (then `shape` may be left
    out, and int8 models use a table); `dynamic = True` if results may be smaller than `shape` says;
    and a method `macs`, the number of multiply-accumulates. If `compute` has a parameter `out=None`
    after the `*`, a session gives it the array of the result (a list, if there are several) to
    write into and to return; that saves a copy.
    """
    definition = define(operator)
    with table.lock:
        if (before := table.CLASSES.get(definition.name)) is not None:
            _refuse_another(before, definition)
        table.add_class(definition)
    return operator


def _refuse_another(before: Definition, now: Definition) -> None:
    """BadInput unless it is the same class, defined again (as in a notebook)."""
    places = [_place(d) for d in (before, now)]
    if places[0] != places[1]:
        raise BadInput(
            f"custom operator '{now.name}' is registered already, by {places[0]}; choose another "
            f'name, or call intaglio.custom.unregister("{now.name}") first'
        )


def _place(definition: Definition) -> str:
    function = definition.body or definition.shape
    return f"{function.__module__}.{function.__qualname__.rpartition('.')[0]}"


def unregister(name: str) -> None:
    """Remove a custom operator that `register` added, or the plug-in of this name.

    Packages that are open keep it.
    """
    with table.lock:
        plugins = {op.native_op.plugin.name for op in table.PLUGGED.values() if op.native_op.plugin}
        if name in table.CLASSES:
            table.remove_class(name)
        elif name in plugins:
            table.remove_plugin(name)
        else:
            known = [*table.CLASSES, *plugins]
            hint = did_you_mean(name, known)
            raise BadInput(f"no custom operator or plug-in '{name}' is registered{hint}")


def registered() -> dict[str, str]:
    """The custom operators by name, and what runs each: "Python", "plug-in acme 1.0", or both."""
    found: dict[str, list[str]] = {}
    for name, op in table.PLUGGED.items():
        if (about := op.native_op.plugin) is not None:
            found[name] = [f"plug-in {about.name} {about.version}".strip()]
    for name, definition in table.CLASSES.items():
        if definition.body is not None:
            found.setdefault(name, []).append("Python")
    return {name: ", ".join(found[name]) for name in sorted(found)}


def find(format: str, name: str) -> Op | None:
    """The custom operator that a model format calls `name`; plug-ins are searched for it."""
    if (format, name) not in CUSTOM_NAMES:
        look_again()
    return CUSTOM_NAMES.get((format, name))
