"""All custom operators of this process: what classes and plug-ins define, joined into Ops.

An operator may have a class, an operator of a plug-in, or both. With both, the class is its meaning
(shapes, constants, the interpreter) and the plug-in its kernels. Without a kernel for its element
type, `acme.soft_clip` is lowered to `python.acme.soft_clip`, a callback into the class.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import marshal
import threading
from importlib import import_module
from typing import Any

from intaglio import native
from intaglio.custom import plugin
from intaglio.custom.callback import Callbacks
from intaglio.custom.definition import Definition, make_op, plain_attribute
from intaglio.custom.plugin import PluginOp
from intaglio.errors import BadInput
from intaglio.ir import Type, Value
from intaglio.native_op import CALLER, EXTENT, TEXT
from intaglio.ops.registry import CUSTOM_NAMES, REGISTRY, Op

CLASSES: dict[str, Definition] = {}
PLUGGED: dict[str, PluginOp] = {}
# operators of plug-ins whose meaning Intaglio has itself, and the modules that have it
OURS = {"sophgo.run": "intaglio.npu.chips.sophgo_run"}
PREFIX = "python."
Pairs = tuple[tuple[str, Any], ...]
lock = threading.RLock()


def add_class(definition: Definition) -> None:
    """Add an operator that a class defines, or define it again."""
    name = definition.name
    if definition.body is None and name not in PLUGGED:
        raise BadInput(
            f"custom operator '{name}' has no method compute, and no plug-in that is loaded has "
            "it; write compute, or load the plug-in first"
        )
    _refuse_taken(name, _names(name, definition, PLUGGED.get(name)))
    if name in CLASSES:
        remove_class(name)
    CLASSES[name] = definition
    if definition.body is not None:
        _add_callbacks(definition)
    _join(name)


def remove_class(name: str) -> None:
    """Remove an operator that a class defines."""
    if CLASSES.pop(name).body is not None:
        plugin.unregister_name(PREFIX + name)
        native.remove_ops([PREFIX + name])
    _join(name)


def add_plugged(ops: list[PluginOp]) -> None:
    """Add the operators of a plug-in, or none of them."""
    try:
        for op in ops:
            name = op.native_op.name
            _refuse_taken(name, _names(name, CLASSES.get(name), op))
    except BadInput:
        about = ops[0].native_op.plugin
        assert about is not None
        plugin.unregister_name(about.name)
        native.remove_ops([op.native_op.name for op in ops])
        raise
    for op in ops:
        PLUGGED[op.native_op.name] = op
        _join(op.native_op.name)


def remove_plugin(name: str) -> None:
    """Remove the operators of a plug-in."""
    plugin.unregister_name(name)
    gone = [
        n for n, op in PLUGGED.items() if op.native_op.plugin and op.native_op.plugin.name == name
    ]
    native.remove_ops(gone)
    for one in gone:
        del PLUGGED[one]
        if one in CLASSES and CLASSES[one].body is None:
            del CLASSES[one]
        _join(one)


def _join(name: str) -> None:
    """Make the Op of a name again, from its class and its plug-in."""
    if name in OURS:
        import_module(OURS[name])
        return
    for known in (name, PREFIX + name):
        REGISTRY.pop(known, None)
    for key in [k for k, op in CUSTOM_NAMES.items() if op.name == name]:
        del CUSTOM_NAMES[key]
    definition, plugged = CLASSES.get(name), PLUGGED.get(name)
    if definition is not None:
        op = make_op(definition, definition.body or PLUGGED[name].body)
        if plugged is not None and definition.macs is None:
            op.macs = plugged.macs
    elif plugged is not None:
        op = Op(name, plugged.body, plugged.infer, macs=plugged.macs, custom=True)
        op.signature = plugged.signature
    else:
        return
    op.names = _names(name, definition, plugged)
    if definition is not None and definition.body is not None:
        _python_op(op)
    CUSTOM_NAMES.update(dict.fromkeys(op.names.items(), op))
    REGISTRY[name] = op


def _refuse_taken(name: str, names: dict[str, str]) -> None:
    for format, called in names.items():
        other = CUSTOM_NAMES.get((format, called))
        if other is not None and other.name != name:
            raise BadInput(
                f"custom operator '{name}': {format} operator '{called}' is custom operator "
                f"'{other.name}' already"
            )


def _names(name: str, definition: Definition | None, plugged: PluginOp | None) -> dict[str, str]:
    """The operator's names in model formats. In ONNX its prefix is the domain by default."""
    prefix, _, last = name.rpartition(".")
    found = {"onnx": f"{prefix}::{last}"}
    found |= plugged.names if plugged is not None else {}
    found |= definition.names if definition is not None else {}
    domain, _, op_type = found["onnx"].rpartition("::")
    found["onnx"] = f"{'' if domain == 'ai.onnx' else domain}::{op_type}"
    return found


# ---- callbacks -----------------------------------------------------------------------------------
def _python_op(op: Op) -> None:
    """Define `python.<name>`, the operator as a callback, and lower `op` to it."""

    def body(*arrays: Any, attributes: Pairs, constants: tuple[int, ...]) -> Any:
        return op.body(*arrays, **dict(attributes))

    def infer(*values: Value | None, attributes: Pairs, constants: tuple[int, ...]) -> list[Type]:
        found: list[Type] = op.infer(*values, **dict(attributes))  # type: ignore[assignment]
        return found

    called = Op(PREFIX + op.name, body, infer, custom=True)
    called.macs = lambda node: 0  # one thread runs it
    REGISTRY[called.name] = called

    def lower(*values: Value | None, **attrs: Any) -> Any:
        pairs = tuple((k, plain_attribute(op.name, k, v)) for k, v in sorted(attrs.items()))
        fixed = tuple(i for i, v in enumerate(values) if v is not None and v.data is not None)
        return called(*values, attributes=pairs, constants=fixed)

    op.lowers(lower)


def _add_callbacks(definition: Definition) -> None:
    """Register `python.<name>` with the runtime."""
    assert definition.body is not None
    types = functools.partial(_types, definition)
    calls = Callbacks(definition.body, types, definition.dynamic, definition.takes_out)
    name = (PREFIX + definition.name).encode()
    flags = CALLER | TEXT | (EXTENT if definition.dynamic else 0)
    c = native.COp(name, b"", 0, flags, 0, ctypes.cast(calls.infer, native.Infer))
    run = ctypes.cast(calls.run, native.Run)
    kernel = native.CKernel(ctypes.pointer(c), b"any", b"python", b"", 0, run)
    made = plugin.CPlugin(plugin.abi(), 1, name, b"", ctypes.pointer(kernel))
    plugin.register_struct(made, (c, kernel, calls))
    about = native.Plugin(name.decode(), "", plugin.abi())
    native.add_kernels(*native.rows_of(made.kernels, 1, about))


def _types(definition: Definition, operands: Any, attrs: dict[str, Any]) -> list[Type]:
    return definition.types(operands, attrs)


def fingerprint() -> str:
    """A text that changes when a custom operator does: versions of plug-ins, code of classes."""
    about = []
    for op in (p.native_op for p in PLUGGED.values()):
        about.append(f"{op.name} {op.declared} {op.flags} {op.plugin}".encode())
    for name, definition in CLASSES.items():
        functions = [f for f in (definition.body, definition.shape) if f is not None]
        codes = [f.__code__ for f in functions if hasattr(f, "__code__")]
        about.append(name.encode() + b"".join(map(marshal.dumps, codes)))
    return hashlib.sha256(b" ".join(sorted(about))).hexdigest() if about else ""
