"""C plug-ins: operators and kernels in shared libraries (csrc/include/intaglio_plugin.h)."""

from __future__ import annotations

import ctypes
import inspect
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intaglio import dtypes, native, symint
from intaglio.errors import BadInput, IntaglioError, RunError, Unsupported
from intaglio.ir import Array, Node, Type, Value
from intaglio.native_op import EXTENT, Field, NativeOp, Plugin
from intaglio.status import CError, error_of

Shape = tuple[int, ...]
_keep: list[Any] = []  # structs that the runtime refers to


class CPlugin(ctypes.Structure):
    """struct itg_plugin of intaglio_plugin.h."""

    _fields_ = [
        ("abi", ctypes.c_uint32),
        ("n_kernels", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("version", ctypes.c_char_p),
        ("kernels", ctypes.POINTER(native.CKernel)),
    ]


def include() -> Path:
    """The folder of the C headers that a plug-in is built with: `cc -I$(...)`."""
    here = Path(native.__file__).parent
    places = [here / "include", here.parents[1] / "csrc" / "include"]  # installed; in a checkout
    for folder in places:
        if (folder / "intaglio_plugin.h").is_file():
            return folder
    raise IntaglioError(f"the C headers are missing: looked in {places[0]}; reinstall intaglio")


def abi() -> int:
    """The ABI of plug-ins that the runtime takes."""
    return int(native.library().itg_plugin_abi())


def load_library(path: str | os.PathLike[str]) -> list[PluginOp]:
    """Load a plug-in from a shared library; returns its operators."""
    lib, error, found = native.library(), CError(), ctypes.POINTER(CPlugin)()
    where = Path(path).absolute()  # with a "/": no folder is searched
    if not where.is_file():
        raise BadInput(f"cannot load plug-in {str(path)!r}: there is no such file")
    load = lib.itg_load_plugin
    load.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p]
    if status := load(os.fsencode(where), ctypes.byref(found), ctypes.byref(error)):
        raise error_of(status, error.words)
    return _ops_of(found.contents)


def register_struct(made: CPlugin, keep: Any) -> None:
    """Register a plug-in that is made in Python; all that it points to stays in memory."""
    error, register = CError(), native.library().itg_register_plugin
    register.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    _keep.append((made, keep))
    if status := register(ctypes.byref(made), ctypes.byref(error)):
        raise error_of(status, error.words)


def unregister_name(name: str) -> None:
    """Hide a plug-in from packages that are opened from now on."""
    hide, error = native.library().itg_unregister_plugin, CError()
    hide.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    if status := hide(name.encode(), ctypes.byref(error)):
        raise error_of(status, error.words)


def _ops_of(made: CPlugin) -> list[PluginOp]:
    about = Plugin(made.name.decode(), (made.version or b"").decode(), made.abi)
    ops, kernels = native.rows_of(made.kernels, made.n_kernels, about)
    native.add_kernels(ops, kernels)
    rows: dict[str, native.COp] = {}
    for i in range(made.n_kernels):
        rows.setdefault(made.kernels[i].op.contents.name.decode(), made.kernels[i].op.contents)
    found = []
    for name, op in ops.items():
        c, defaults = rows[name], _pairs((rows[name].defaults or b"").decode())
        found.append(
            PluginOp(
                op,
                max(c.n_out, 1),
                c.macs if c.macs else None,
                {f.name: _default(f, defaults[f.name]) for f in op.fields if f.name in defaults},
                _pairs((c.formats or b"").decode()),
            )
        )
    return found


def _pairs(text: str) -> dict[str, str]:
    """The words of "stride=1,1 mode=nearest"."""
    return dict(word.split("=", 1) for word in text.split() if "=" in word)


def _default(f: Field, text: str) -> Any:
    parse = {"i": int, "f": float, "e": str}[f.kind]
    try:
        items = tuple(parse(word) for word in text.split(",") if word)
    except ValueError:
        raise BadInput(f"plug-in: default '{text}' of attribute '{f.name}' is no number") from None
    return items[0] if f.count == 1 else items


@dataclass(frozen=True, eq=False)
class PluginOp:
    """An operator of a plug-in."""

    native_op: NativeOp
    n_out: int
    count_macs: Any  # itg_macs_fn, or None
    defaults: dict[str, Any]
    names: dict[str, str]  # by model format

    @property
    def signature(self) -> inspect.Signature:
        """Any number of inputs; attributes are the fields, less those that count entries."""
        kinds, fields = inspect.Parameter, self.native_op.fields
        counted = {f"n_{f.name}" for f in fields}
        made = [kinds("inputs", kinds.VAR_POSITIONAL)]
        for f in fields:
            if f.name not in counted:
                default = self.defaults.get(f.name, kinds.empty)
                made.append(kinds(f.name, kinds.KEYWORD_ONLY, default=default))
        return inspect.Signature(made)

    # ---- meaning -------------------------------------------------------------------------------
    def body(self, *arrays: Array | None, **attrs: Any) -> list[Array]:
        """The results of the best kernel for this machine."""
        first = next((a for a in arrays if a is not None), None)
        dtype = "f32" if first is None else dtypes.name_of(first.dtype)
        kernel = native.find_kernel(self.native_op.name, dtype, native.machine())
        if kernel is None:
            raise RunError(f"{self.native_op.name} has no kernel for {dtype} on this machine")
        return native.run_kernel(kernel, arrays, attrs, self.n_out)

    def infer(self, *values: Value | None, **attrs: Any) -> list[Type]:
        """The types that the plug-in's C function gives; with open dimensions, at every sample."""
        open_extent = next((d for v in values if v for d in v.shape if symint.is_symbolic(d)), None)
        if open_extent is None:
            return self._types([None if v is None else v.shape for v in values], values, attrs)
        space = open_extent.space  # type: ignore[attr-defined]
        found = []
        for k in range(len(space.samples)):
            shapes = [None if v is None else _at(v.shape, k) for v in values]
            found.append(self._types(shapes, values, attrs))
        return [self._joined(space, list(one)) for one in zip(*found, strict=True)]

    def _joined(self, space: symint.Symbols, types: list[Type]) -> Type:
        """One type with the extents of all samples."""
        shape = []
        for extents in zip(*(t.shape for t in types), strict=True):
            extent = space.known(extents)
            if extent is None:
                raise Unsupported(
                    f"{self.native_op.name}: its plug-in gives extents {extents[0]} to "
                    f"{extents[1]} for these ranges, by a formula that is not known; register a "
                    "class with a shape function for it, or compile for a list of sizes"
                )
            shape.append(extent)
        return types[0].but(shape=tuple(shape))

    def _types(
        self, shapes: Sequence[Shape | None], values: Sequence[Value | None], attrs: dict[str, Any]
    ) -> list[Type]:
        call, inferred, keep = self._call(shapes, values, attrs)
        words = self.native_op.infer(ctypes.byref(call), inferred)
        del keep
        if words:
            raise BadInput(f"{self.native_op.name}: {words.decode()}")
        varies = (0,) if self.native_op.flags & EXTENT else ()
        return [
            Type(dtypes.BY_CODE[t.dtype].name, tuple(t.shape[: t.rank]), dynamic=varies)
            for t in inferred
        ]

    def macs(self, node: Node) -> int:
        """Multiply-accumulates of a node, at the upper bound of open dimensions."""
        if self.count_macs is None:
            return 0
        shapes = [None if v is None else symint.plain(v.shape) for v in node.inputs]
        call, _, keep = self._call(shapes, node.inputs, node.attrs)
        count = int(self.count_macs(ctypes.byref(call)))
        del keep
        return count

    def _call(
        self, shapes: Sequence[Shape | None], values: Sequence[Value | None], attrs: dict[str, Any]
    ) -> tuple[native.CCall, Any, Any]:
        """A call as the C functions see it when a package is opened."""
        for shape in shapes:
            if shape is not None and len(shape) > native.MAX_RANK:
                raise BadInput(
                    f"{self.native_op.name}: rank {len(shape)} is above {native.MAX_RANK}"
                )
        ins = [
            None if v is None else native.typed(v, shape)
            for v, shape in zip(values, shapes, strict=True)
        ]
        call, inferred, keep = native.call_of(ins, self.native_op.pack_attrs(attrs), self.n_out)
        return call, inferred, (keep, ins)


def _at(shape: Sequence[Any], k: int) -> Shape:
    """A shape at sample `k` of its open dimensions."""
    return tuple(d.values[k] if isinstance(d, symint.SymInt) else int(d) for d in shape)
