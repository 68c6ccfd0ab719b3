"""Ops on volumes, N x C x D x H x W, become ops on their slices, which are feature maps.

A slice of a 3-D convolution's result is one 2-D convolution: its input channels are those of all
slices under the window, so the sum over the depth is part of the sum over channels. All bits stay
the same. A pool or depthwise convolution over several slices interleaves them as pixels
(depth_to_space), and its window covers them all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.ir import Array, Node, Value, constant
from intaglio.npu.lowering.builder import Builder, Refused, data
from intaglio.ops.registry import REGISTRY
from intaglio.rewrite import P, Rule, no, rule

DEPTH_AXIS = 2
DEPTH_FIRST = (0, 2, 1, 3, 4)  # axes of N x C x D x H x W as N x D x C x H x W, and back
MAX_SLICES = 64  # of a result: each takes instructions of its own
CONVOLUTIONS = ("qlinear_conv", "conv")
POOLS = ("max_pool", "avg_pool", "qlinear_avg_pool")
MEANS = ("reduce_mean", "qlinear_mean")
PAIRS = {"qlinear_add": (0, 3), "qlinear_mul": (0, 3), "add": (0, 1), "sub": (0, 1), "mul": (0, 1)}
FUNCTIONS = ("lookup", "lookup_wide", "clip", "relu")

WhyNot = Callable[[Node], str | None]


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of a volume along its depth, and the two-dimensional ones of each slice."""

    kernel: int
    stride: int
    dilation: int
    before: int  # padding
    after: int
    flat: dict[str, Any]  # attributes of the windows over height and width

    @classmethod
    def of(cls, attrs: dict[str, Any], kernel: tuple[int, ...]) -> Windows:
        pad = attrs["pad"]
        flat = {k: tuple(attrs[k][1:]) for k in ("stride", "dilation")}
        flat["pad"] = (*pad[1:3], *pad[4:6])
        return cls(kernel[0], attrs["stride"][0], attrs["dilation"][0], pad[0], pad[3], flat)

    def taps(self, depth: int, at: int) -> list[tuple[int, int]]:
        """The (tap, slice) pairs of window `at` that are no padding."""
        start = at * self.stride - self.before
        pairs = ((k, start + k * self.dilation) for k in range(self.kernel))
        return [(k, d) for k, d in pairs if 0 <= d < depth]

    def interleaved(self, block: int, kernel: tuple[int, ...]) -> dict[str, Any]:
        """The windows over slices that are interleaved as blocks of pixels."""
        scaled = {k: tuple(n * block for n in self.flat[k]) for k in ("stride", "pad")}
        return {**scaled, "kernel": tuple(block * n for n in kernel), "dilation": (1, 1)}


def _slices(make: Builder, v: Value) -> list[Value]:
    """The slices of a volume as feature maps; those that it was stacked from, if it was."""
    if (parts := _stacked(v)) is not None:
        return parts
    n, c, depth, h, w = v.shape
    if depth == 1:
        return [make.on_cpu(ops.reshape, v, shape=(n, c, h, w))]
    turned = make.on_cpu(ops.transpose, v, perm=DEPTH_FIRST)
    joined = make.on_cpu(ops.reshape, turned, shape=(n, depth * c, h, w))
    found = []
    for k in range(depth):
        first, last = (0, k * c, 0, 0), (n, k * c + c, h, w)
        found.append(make.on_cpu(ops.slice_, joined, start=first, stop=last, step=(1,) * 4))
    return found


def _stack(make: Builder, maps: list[Value]) -> Value:
    """The volume of these slices: one map with all of their channels, which the CPU reorders."""
    n, c, h, w = maps[0].shape
    if len(maps) == 1:
        return make.on_cpu(ops.reshape, maps[0], shape=(n, c, 1, h, w))
    joined = make.on_cpu(ops.concat, *maps, axis=1)
    apart = make.on_cpu(ops.reshape, joined, shape=(n, len(maps), c, h, w))
    return make.on_cpu(ops.transpose, apart, perm=DEPTH_FIRST)


def _stacked(v: Value) -> list[Value] | None:
    """The maps that `_stack` made a volume from."""
    n, c, depth, h, w = v.shape
    if depth == 1:
        before = _made_by(v, "reshape")
        return [before] if before is not None and before.shape == (n, c, h, w) else None
    turned = v.producer
    apart = _made_by(v, "transpose")
    if apart is None or turned is None or tuple(turned.attrs["perm"]) != DEPTH_FIRST:
        return None
    joined = _made_by(apart, "reshape")
    if joined is None or joined.shape != (n, depth * c, h, w):
        return None
    concat = joined.producer
    if concat is None or concat.op != "concat" or concat.attrs["axis"] % 4 != 1:
        return None
    maps = [u for u in concat.inputs if u is not None]
    return maps if all(u.shape == (n, c, h, w) for u in maps) else None


def _made_by(v: Value, op: str) -> Value | None:
    """The first operand of the node that makes a value, if it is this op."""
    return v.producer.inputs[0] if v.producer is not None and v.producer.op == op else None


def _is_volume(v: Value | None) -> bool:
    return v is not None and v.type.rank == 5 and not v.type.dynamic and v.type.size > 0


def _interleaved(make: Builder, maps: list[Value]) -> tuple[Value, int]:
    """Maps as the pixels of blocks of one map, and the extent of a block; the rest repeats one."""
    block = math.isqrt(len(maps) - 1) + 1
    filled = [*maps, *[maps[0]] * (block * block - len(maps))]
    joined = make.on_cpu(ops.concat, *filled, axis=1)
    return make.on_cpu(ops.depth_to_space, joined, blocksize=block, mode="DCR"), block


# ---- convolutions --------------------------------------------------------------------------------
def _convolution(make: Builder, node: Node) -> list[Value]:
    """The slices of a 3-D convolution's result."""
    integers = node.op == "qlinear_conv"
    at = 3 if integers else 1  # the index of the weights
    x, w = node.inputs[0], node.inputs[at]
    assert x is not None
    assert w is not None
    if w.data is None:
        raise Refused("its weights are no constant")
    groups, channels = node.attrs["groups"], x.shape[1]
    windows = Windows.of(node.attrs, w.shape[2:])
    depthwise = groups == channels == w.shape[0] and w.shape[1] == 1
    if groups > 1 and windows.kernel > 1 and not depthwise:
        raise Refused(
            f"it has {groups} groups of {w.shape[1]} channels over {windows.kernel} slices; "
            "units sum slices of one group, or of one channel each"
        )
    residuals = node.inputs[9] if integers else None
    added = _slices(make, residuals) if residuals is not None else []
    maps, given = _slices(make, x), list(node.inputs)
    known: dict[tuple[int, ...], Value] = {}
    results = []
    for k in range(node.outputs[0].shape[DEPTH_AXIS]):
        taps = windows.taps(len(maps), k)
        if not taps:
            raise Refused("a window sees padding only")
        key = tuple(tap for tap, _ in taps)
        attrs = {**windows.flat, "groups": groups}
        if groups == 1 or len(taps) == windows.kernel == 1:
            seen = [maps[d] for _, d in taps]
            given[0] = seen[0] if len(seen) == 1 else make.on_cpu(ops.concat, *seen, axis=1)
            if key not in known:
                known[key] = constant(_joined_taps(data(w), key))
        else:
            given[0], block = _interleaved(make, [maps[d] for _, d in taps])
            kernel = tuple(
                (n - 1) * d + 1 for n, d in zip(w.shape[3:], windows.flat["dilation"], strict=True)
            )
            attrs = {**windows.interleaved(block, kernel), "groups": groups}
            del attrs["kernel"]
            if key not in known:
                zero = data(node.inputs[5]) if integers else np.zeros((), data(w).dtype)  # type: ignore[arg-type]
                known[key] = constant(
                    _interleaved_taps(data(w), key, block, windows.flat["dilation"], zero)
                )
        given[at] = known[key]
        if added:
            given[9] = added[k]
        results.append(make.on_cpu(REGISTRY[node.op], *given, **attrs))
    return results


def _joined_taps(w: Array, taps: tuple[int, ...]) -> Array:
    """Weights [OC, IC, D, H, W] of some taps of the depth as [OC, taps * IC, H, W]."""
    chosen = w[:, :, list(taps)].swapaxes(1, 2)
    return np.ascontiguousarray(chosen.reshape(len(w), -1, *w.shape[3:]))


def _interleaved_taps(
    w: Array, taps: tuple[int, ...], block: int, dilation: tuple[int, int], zero: Array
) -> Array:
    """Depthwise weights [C, 1, D, H, W] for slices that are the pixels of blocks."""
    high, wide = ((n - 1) * d + 1 for n, d in zip(w.shape[3:], dilation, strict=True))
    made = np.empty((len(w), 1, high * block, wide * block), w.dtype)
    made[...] = zero.astype(w.dtype).reshape(-1, 1, 1, 1)
    for phase, tap in enumerate(taps):
        i, j = divmod(phase, block)
        made[:, :, i :: block * dilation[0], j :: block * dilation[1]] = w[:, :, tap]
    return made


# ---- pools ---------------------------------------------------------------------------------------
def _pool(make: Builder, node: Node) -> list[Value]:
    """The slices of a 3-D pool's result."""
    x, attrs = node.inputs[0], node.attrs
    assert x is not None
    windows = Windows.of(attrs, attrs["kernel"])
    maps, largest = _slices(make, x), node.op == "max_pool"
    kernel = tuple(attrs["kernel"][1:])
    rest = {k: v for k, v in attrs.items() if k not in (*windows.flat, "kernel")}
    if largest and attrs["with_indices"]:
        raise Refused("its indices are read, too; units return the largest numbers only")
    results = []
    for k in range(node.outputs[0].shape[DEPTH_AXIS]):
        seen = [maps[d] for _, d in windows.taps(len(maps), k)]
        if not seen:
            raise Refused("a window sees padding only")
        if windows.kernel == 1:
            window, one = {**windows.flat, "kernel": kernel}, seen[0]
        elif not largest:
            raise Refused(
                f"it averages over {windows.kernel} slices; units average over one slice, "
                "or over the whole volume"
            )
        elif set(windows.flat["dilation"]) != {1}:
            raise Refused(f"dilation is {attrs['dilation']}; windows over slices have none")
        elif len(seen) == 1:
            window, one = {**windows.flat, "kernel": kernel}, seen[0]
        else:
            one, block = _interleaved(make, seen)
            window = windows.interleaved(block, kernel)
        results.append(make.on_cpu(REGISTRY[node.op], one, *node.inputs[1:], **rest, **window))
    return results


def _whole_mean(make: Builder, node: Node) -> Value:
    """A mean over all of a volume as one over the pixels of a map."""
    x, attrs, out = node.inputs[0], node.attrs, node.outputs[0]
    assert x is not None
    n, c, depth, h, w = x.shape
    flat = make.on_cpu(ops.reshape, x, shape=(n, c, depth * h, w))
    if node.op in MEANS and tuple(sorted(a % 5 for a in attrs["axes"])) == (2, 3, 4):
        changes: dict[str, Any] = {"axes": (2, 3)}
    elif node.op in POOLS and tuple(attrs["kernel"]) == (depth, h, w) and not any(attrs["pad"]):
        changes = {"kernel": (depth * h, w), "stride": (1, 1), "pad": (0,) * 4, "dilation": (1, 1)}
    else:
        raise Refused("it is no mean over the whole volume")
    mean = make.on_cpu(REGISTRY[node.op], flat, *node.inputs[1:], **{**attrs, **changes})
    return make.on_cpu(ops.reshape, mean, shape=out.shape)


# ---- the other ops -------------------------------------------------------------------------------
def _pair(make: Builder, node: Node) -> list[Value]:
    """The slices of a sum or product of two volumes."""
    out, places = node.outputs[0], PAIRS[node.op]
    operands = [node.inputs[k] for k in places]
    if not all(_is_volume(v) for v in operands):
        raise Refused("an operand is no volume")
    maps = [_slices(make, v) for v in operands if v is not None]
    results = []
    for k in range(out.shape[DEPTH_AXIS]):
        given = list(node.inputs)
        for place, each in zip(places, maps, strict=True):
            given[place] = each[k if len(each) > 1 else 0]
        results.append(make.on_cpu(REGISTRY[node.op], *given, **node.attrs))
    return results


def _function(make: Builder, node: Node) -> list[Value]:
    """The slices of a table or clip."""
    x = node.inputs[0]
    assert x is not None
    made, rest = REGISTRY[node.op], node.inputs[1:]
    return [make.on_cpu(made, v, *rest, **node.attrs) for v in _slices(make, x)]


def _concat(make: Builder, node: Node) -> list[Value]:
    """The slices of volumes that are concatenated along the channels."""
    maps = [_slices(make, v) for v in node.inputs if v is not None]
    return [make.on_cpu(ops.concat, *each, axis=1) for each in zip(*maps, strict=True)]


def volume_rules(make: Builder, why_not: WhyNot) -> tuple[Rule, ...]:
    """The rules by which ops on volumes become ops on feature maps that units compute.

    `why_not` says why the NPU cannot run a node. Only convolutions are asked about: the others
    follow them, and slices of what units make cost nothing.
    """

    def sliced(node: Node, by: Callable[[Builder, Node], list[Value]], asked: bool = False) -> Any:
        """The result of `by`, which makes its slices."""

        def build(_: Builder) -> Value:
            slices = node.outputs[0].shape[DEPTH_AXIS]
            if slices > MAX_SLICES:
                raise Refused(
                    f"its result has {slices} slices; at most {MAX_SLICES} become feature maps"
                )
            maps = by(make, node)
            for v in maps if asked else ():
                if v.producer is not None and (why := why_not(v.producer)):
                    raise Refused(why)
            return _stack(make, maps)

        return make.attempt(build)

    @rule(P.any(*CONVOLUTIONS))
    def volume_conv(node: Node) -> Any:
        """Write a 3-D convolution as one 2-D convolution for each slice of its result."""
        volumes = all(map(_is_volume, (node.inputs[0], node.outputs[0])))
        return sliced(node, _convolution, asked=True) if volumes else None

    @rule(P.any(*POOLS, *MEANS))
    def volume_pool(node: Node) -> Any:
        """Write a 3-D pool as one 2-D pool for each slice, a mean of a volume as one of a map."""
        x = node.inputs[0]
        if x is None or not _is_volume(x) or _stacked(x) is None:
            return None
        whole = no("") if node.op == "max_pool" else make.attempt(_whole_mean, node)
        if isinstance(whole, Value) or node.op in MEANS:
            return whole
        return sliced(node, _pool)

    @rule(P.any(*PAIRS))
    def volume_pair(node: Node) -> Any:
        """Add or multiply volumes slice by slice."""
        operands = [node.inputs[k] for k in PAIRS[node.op]]
        if not all(map(_is_volume, operands)) or not any(map(_stacked, operands)):  # type: ignore[arg-type]
            return None
        return sliced(node, _pair)

    @rule(P.any(*FUNCTIONS))
    def volume_function(node: Node) -> Any:
        """Look up, clip or rectify slice by slice."""
        x = node.inputs[0]
        found = x is not None and _is_volume(x) and _stacked(x) is not None
        return sliced(node, _function) if found else None

    @rule(P.any("concat"))
    def volume_concat(node: Node) -> Any:
        """Concatenate the channels of volumes slice by slice."""
        parts = [v for v in node.inputs if v is not None]
        if not all(map(_is_volume, parts)) or node.attrs["axis"] % 5 != 1:
            return None
        return sliced(node, _concat) if any(map(_stacked, parts)) else None

    return volume_conv, volume_pool, volume_pair, volume_function, volume_concat
