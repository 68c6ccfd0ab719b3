"""The layouts in which a session takes its inputs: NHWC where the model says NCHW, or reversed."""

from __future__ import annotations

import ctypes

from intaglio.arguments import described
from intaglio.errors import BadInput
from intaglio.feeds import no_such_name
from intaglio.ir import Type
from intaglio.native_session import NativeSession
from intaglio.runtime import library

LAYOUTS = (None, "NHWC", "NCHW")  # enum itg_layout


def read_layout(native: NativeSession, name: str) -> str | None:
    """The layout to which the first steps transpose an input; None if they do not."""
    found = ctypes.c_uint32()
    status = library().itg_input_layout(native.handle, _number(native, name), ctypes.byref(found))
    native.check(status)
    return LAYOUTS[found.value]


def set_layout(native: NativeSession, name: str, layout: str | None) -> None:
    """Let a session take an input in another layout; None: as the model declares it."""
    wanted = layout.upper() if isinstance(layout, str) else layout
    if wanted not in LAYOUTS:
        raise BadInput(f"layout is {described(layout)}; it is NHWC, NCHW or None")
    number = _number(native, name)
    if len(native.plan_inputs) > 1:
        raise BadInput(
            f"input '{name}': the package has a list of shapes, so its layout cannot be set; "
            f"compile it with input_layout={wanted!r}"
        )
    declared = native.plan_inputs[0][name]
    if declared.quant is not None and declared.quant.axis is not None:
        raise BadInput(f"input '{name}' has a scale for each channel; its layout cannot be set")
    native.check(library().itg_set_input_layout(native.handle, number, LAYOUTS.index(wanted)))
    native.perms.pop(name, None)
    if wanted is not None:
        native.perms[name] = (0, 2, 3, 1) if wanted == "NHWC" else (0, 3, 1, 2)
    native.inputs[name] = _permuted(declared, native.perms.get(name))


def copy_layouts(source: NativeSession, to: NativeSession) -> None:
    """Give a clone the layouts of its original."""
    for name, perm in source.perms.items():
        set_layout(to, name, "NHWC" if perm == (0, 2, 3, 1) else "NCHW")


def _permuted(t: Type, perm: tuple[int, ...] | None) -> Type:
    return t if perm is None else t.but(shape=tuple(t.shape[k] for k in perm))


def _number(native: NativeSession, name: str) -> int:
    if name not in native.inputs:
        raise no_such_name("input", name, native.inputs)
    return native.input_numbers[list(native.inputs).index(name)]
