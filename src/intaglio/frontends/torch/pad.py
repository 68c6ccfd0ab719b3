"""Importers of padding: constant, reflect, replicate, circular."""

from __future__ import annotations

from typing import Any

from intaglio import ops
from intaglio.errors import BadInput
from intaglio.frontends.torch.importer import importer, integer, ints
from intaglio.ir import Value


@importer("constant_pad_nd")
def constant_pad_nd(self: Value, pad: Any, value: Any = 0) -> Value:
    return padded(self, ints(pad), "constant", float(value))


@importer("pad")
def pad_(self: Value, pad: Any, mode: str = "constant", value: Any = None) -> Value:
    return padded(self, ints(pad), mode, float(value or 0))


@importer("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflection_pad(self: Value, padding: Any) -> Value:
    return padded(self, ints(padding), "reflect", 0.0)


@importer("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replication_pad(self: Value, padding: Any) -> Value:
    return padded(self, ints(padding), "replicate", 0.0)


def padded(x: Value, pads: tuple[int, ...], mode: str, value: float) -> Value:
    """x padded by pairs (before, after), last axis first; negative pads crop."""
    rank = x.type.rank
    if len(pads) % 2 or len(pads) > 2 * rank:
        raise BadInput(f"padding {pads} does not fit {x.type}")
    kinds = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    if mode not in kinds:
        raise BadInput(f"padding mode '{mode}' is none of {', '.join(kinds)}")
    before, after = [0] * rank, [0] * rank
    for i in range(len(pads) // 2):
        before[rank - 1 - i], after[rank - 1 - i] = pads[2 * i], pads[2 * i + 1]
    for axis in range(rank):
        low, high = max(-before[axis], 0), x.shape[axis] - max(-after[axis], 0)
        if (low, high) != (0, x.shape[axis]):
            x = ops.part(x, low, high, axis=axis)
    outer = tuple(max(b, 0) for b in before), tuple(max(a, 0) for a in after)
    if not any((*outer[0], *outer[1])):
        return x
    result: Value = ops.pad(x, before=outer[0], after=outer[1], mode=kinds[mode], value=value)
    return result


def _cut(upper: bool) -> Any:
    def function(self: Value, diagonal: int = 0) -> Value:
        result: Value = ops.trilu(self, k=integer(diagonal), upper=upper)
        return result

    return function


importer("triu")(_cut(upper=True))
importer("tril")(_cut(upper=False))
