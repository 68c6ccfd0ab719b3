"""Safe unpickling: pickles are parsed as data; no code of the file is imported or called.

`pickletools` decodes the opcodes. An import becomes a `Name`, a call is looked up in a short list
of constructors of tensors and containers, and objects become `Record`s. Other calls are an error,
or a `Record` with `outline`.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from intaglio.errors import BadFile

MAX_OPCODES = 20_000_000
_PLAIN = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_LITERAL = {
    "BININT",
    "BININT1",
    "BININT2",
    "LONG1",
    "LONG4",
    "INT",
    "LONG",
    "BINFLOAT",
    "FLOAT",
    "BINUNICODE",
    "SHORT_BINUNICODE",
    "BINUNICODE8",
    "UNICODE",
    "BINSTRING",
    "SHORT_BINSTRING",
    "STRING",
    "BINBYTES",
    "SHORT_BINBYTES",
    "BINBYTES8",
}
_NOTHING = {"PROTO", "FRAME"}


@dataclass(frozen=True, slots=True)
class Name:
    """A global that the pickle refers to."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(slots=True, eq=False)
class Record:
    """An object of the file: the name of its class, and its state."""

    name: str
    state: Any = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Storage:
    """A block of elements, with its record in the archive."""

    kind: str  # "FloatStorage"
    key: str
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """A tensor: a strided view of a storage; `quant` is (scheme, *parameters) as stored."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    quant: tuple[Any, ...] | None = None


def _tensor(*a: Any) -> Stored:
    return Stored(a[0], a[1], tuple(a[2]), tuple(a[3]))


def _qtensor(*a: Any) -> Stored:
    return Stored(a[0], a[1], tuple(a[2]), tuple(a[3]), tuple(a[4]))


def _mapping(*a: Any) -> dict[Any, Any]:
    return dict(a[0]) if a else {}


def _first(*a: Any) -> Any:
    return a[0]


_CALLS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_qtensor": _qtensor,
    "torch._utils._rebuild_parameter": _first,
    "collections.OrderedDict": _mapping,
    "torch.jit._pickle.restore_type_tag": _first,
    "torch.jit._pickle.build_intlist": _first,
    "torch.jit._pickle.build_doublelist": _first,
    "torch.jit._pickle.build_boollist": _first,
    "torch.jit._pickle.build_tensorlist": _first,
    "torch.device": _first,
    "torch.Size": _first,
}
_MARK = object()


def unpickle(data: bytes, what: str, outline: bool = False) -> Any:
    """The object of a pickle; with `outline`, unknown calls become Records."""
    try:
        return _Machine(what, outline).run(data)
    except BadFile:
        raise
    except (
        ValueError,
        IndexError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        MemoryError,
        UnicodeError,
    ) as e:
        words = " ".join(str(e).split())[:120]
        raise BadFile(f"{what} is damaged ({type(e).__name__}: {words})") from None


class _Machine:
    def __init__(self, what: str, outline: bool):
        self.what, self.outline = what, outline
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, data: bytes) -> Any:
        for count, (op, arg, _) in enumerate(pickletools.genops(data)):
            if count > MAX_OPCODES:
                raise BadFile(f"{self.what} has more than {MAX_OPCODES} opcodes; it is malicious")
            name = op.name
            if name == "STOP":
                return self.stack.pop()
            if name in _LITERAL:
                self.stack.append(arg)
            elif name in _PLAIN:
                self.stack.append(_PLAIN[name])
            elif name not in _NOTHING:
                step = getattr(self, f"_{name.lower()}", None)
                if step is None:
                    raise BadFile(f"{self.what} uses pickle opcode {name}, which no model needs")
                step(arg)
        raise BadFile(f"{self.what} is truncated")

    # ---- the stack and the memo ----
    def _since_mark(self) -> list[Any]:
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise ValueError("a mark is missing")
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def _mark(self, arg: Any) -> None:
        self.stack.append(_MARK)

    def _pop(self, arg: Any) -> None:
        self.stack.pop()

    def _put(self, arg: Any) -> None:
        self.memo[int(arg)] = self.stack[-1]

    _binput = _long_binput = _put

    def _memoize(self, arg: Any) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def _get(self, arg: Any) -> None:
        self.stack.append(self.memo[int(arg)])

    _binget = _long_binget = _get

    # ---- containers ----
    def _empty_tuple(self, arg: Any) -> None:
        self.stack.append(())

    def _empty_list(self, arg: Any) -> None:
        self.stack.append([])

    def _empty_dict(self, arg: Any) -> None:
        self.stack.append({})

    def _empty_set(self, arg: Any) -> None:
        self.stack.append([])

    def _tuple(self, arg: Any) -> None:
        self.stack.append(tuple(self._since_mark()))

    def _list(self, arg: Any) -> None:
        self.stack.append(self._since_mark())

    def _dict(self, arg: Any) -> None:
        self.stack.append({})
        self._fill(self._since_mark())

    def _tuple1(self, arg: Any) -> None:
        self._last(1)

    def _tuple2(self, arg: Any) -> None:
        self._last(2)

    def _tuple3(self, arg: Any) -> None:
        self._last(3)

    def _last(self, count: int) -> None:
        if len(self.stack) < count:
            raise ValueError("the stack is empty")
        items = tuple(self.stack[-count:])
        del self.stack[-count:]
        self.stack.append(items)

    def _append(self, arg: Any) -> None:
        item = self.stack.pop()
        self.stack[-1].append(item)

    def _appends(self, arg: Any) -> None:
        items = self._since_mark()
        self.stack[-1].extend(items)

    _additems = _appends

    def _setitem(self, arg: Any) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._fill([key, value])

    def _setitems(self, arg: Any) -> None:
        self._fill(self._since_mark())

    def _fill(self, items: list[Any]) -> None:
        into = self.stack[-1]
        pairs = zip(items[::2], items[1::2], strict=True)
        if isinstance(into, Record):  # a subclass of dict
            into.state = {**into.state, **dict(pairs)} if isinstance(into.state, dict) else {}
        elif isinstance(into, dict):
            into.update(pairs)
        else:
            raise ValueError(f"items are set on a {type(into).__name__}")

    # ---- objects ----
    def _global(self, arg: str) -> None:
        module, _, name = arg.partition(" ")
        self.stack.append(Name(module, name))

    def _stack_global(self, arg: Any) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.stack.append(Name(str(module), str(name)))

    def _reduce(self, arg: Any) -> None:
        args, function = self.stack.pop(), self.stack.pop()
        call = _CALLS.get(str(function)) if isinstance(function, Name) else None
        if call is not None:
            self.stack.append(call(*args))
        elif self.outline:
            self.stack.append(Record(str(function), {"args": args}))
        else:
            raise BadFile(
                f"{self.what} asks to call '{str(function)[:120]}'; only tensors, lists "
                "and modules are supported, and no code of a file is ever executed"
            )

    def _newobj(self, arg: Any) -> None:
        self.stack.pop()
        kind = self.stack.pop()
        if not isinstance(kind, Name) or not (
            self.outline or kind.module.startswith("__torch__") or kind.module == ""
        ):
            raise BadFile(
                f"{self.what} asks to make a '{str(kind)[:120]}'; only modules of "
                "TorchScript are supported, and no code of a file is ever executed"
            )
        self.stack.append(Record(str(kind)))

    def _newobj_ex(self, arg: Any) -> None:
        self.stack.pop()
        self._newobj(arg)

    def _build(self, arg: Any) -> None:
        state = self.stack.pop()
        result = self.stack[-1]
        if isinstance(result, Record):
            result.state = state

    def _binpersid(self, arg: Any) -> None:
        pid = self.stack.pop()
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage":
            raise BadFile(f"{self.what} refers to an object that is not a storage: {str(pid)[:80]}")
        kind = pid[1].name if isinstance(pid[1], Name) else str(pid[1])
        self.stack.append(Storage(kind, str(pid[2]), int(pid[4])))
