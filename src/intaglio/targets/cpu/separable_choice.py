"""Which depthwise convolutions are fused with the 1x1 convolutions around them (cpu.separable)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from intaglio.ir import Node, Value
from intaglio.ops.registry import REGISTRY
from intaglio.rewrite import No, P, Rule, no, rule
from intaglio.targets.cpu.separable import ONE, separable

w, bias, residual, slope = P["w bias? residual? slope?"]
UNFUSED, PAIR, BLOCK = "layer by layer", "depthwise + 1x1 fused", "1x1 + depthwise + 1x1 fused"

MIN_BETWEEN = 1_150_000  # bytes between layers from which fusing pays; fitted with a 1 MB L2
MAX_WEIGHTS = 128 << 10  # bytes of weights, which every band reads again from the L2
MAX_LINES = 384 << 10  # bytes of lines between the convolutions, beside the weights in the L2
MAX_INTENSITY = 16  # multiply-accumulates per byte; with more, memory is no bottleneck


@dataclass(frozen=True)
class Block:
    """A depthwise convolution, the 1x1 convolution behind it, and optionally the one before it."""

    taps: Node
    last: Node
    expand: Node | None

    @property
    def between(self) -> int:
        """Bytes that pass between the layers, and would stay in the cache if fused."""
        result = self.taps.outputs[0].type.bytes
        return result if self.expand is None else result + self.expand.outputs[0].type.bytes

    @property
    def weights(self) -> int:
        wide = 0 if self.expand is None else self.expand.inputs[1].type.bytes  # type: ignore[union-attr]
        return wide + self.last.inputs[1].type.bytes  # type: ignore[union-attr]

    @property
    def lines(self) -> int:
        """The least bytes between the convolutions at a time."""
        _, _, wide, channels = self.taps.outputs[0].shape
        if self.expand is None:
            return wide * channels * 4
        high = self.taps.inputs[1].shape[0]  # type: ignore[union-attr]
        return (wide + high * self.expand.outputs[0].shape[2]) * channels * 4

    def pays(self) -> bool:
        """Do the lines stay in the L2 cache, while unfused layers would wait for memory?"""
        nodes = [n for n in (self.expand, self.taps, self.last) if n is not None]
        work = sum(REGISTRY[n.op].macs(n) for n in nodes)
        near = self.weights <= MAX_WEIGHTS and self.lines <= MAX_LINES
        return near and self.between > MIN_BETWEEN and work <= MAX_INTENSITY * self.between


def _why_not_product(node: Node) -> str | None:
    if node.inputs[0].type.rank != 4 or node.inputs[0].dtype != "f32":  # type: ignore[union-attr]
        return f"the 1x1 convolution reads {node.inputs[0].type}"  # type: ignore[union-attr]
    if any(node.attrs[k] != v for k, v in ONE.items()) or node.attrs["made"] != "same":
        return "the convolution is not 1x1 with one group and one type"
    if node.outputs[0].type.dynamic or not node.outputs[0].type.size:
        return "the shape is dynamic or empty"
    return None


def _why_not_inside(node: Node) -> str | None:
    if node.inputs[3] is not None or node.attrs["act"] == "prelu" or node.attrs["made"] != "same":
        return f"{node.op} has a residual, slopes or another result type"
    return None


def _expansion(v: Value | None) -> Node | None:
    """The 1x1 convolution that makes `v` for this reader only, if a block can include it."""
    node = v.producer if v is not None else None
    if node is None or node.op != "cpu.conv" or len(v.uses) > 1:  # type: ignore[union-attr]
        return None
    return None if _why_not_product(node) or _why_not_inside(node) else node


def _why_not_taps(taps: Node) -> str | None:
    if taps.attrs["dilation"] != (1, 1):
        return f"the depthwise convolution has dilation {taps.attrs['dilation']}"
    return _why_not_inside(taps)


def _alone(node: Node, op: str) -> Node | None:
    """The only reader of `node`, if it is of this op and reads it as first operand."""
    readers = list(node.outputs[0].uses)
    if len(readers) != 1 or readers[0].op != op or readers[0].inputs[0] is not node.outputs[0]:
        return None
    return readers[0]


def _next(node: Node) -> Block | None:
    """The block that would begin with the 1x1 convolution `node`."""
    taps = _alone(node, "cpu.depthwise") if _expansion(node.outputs[0]) else None
    last = _alone(taps, "cpu.conv") if taps is not None and not _why_not_taps(taps) else None
    if taps is None or last is None or _why_not_product(last):
        return None
    return Block(taps, last, node)


@rule(P.op("cpu.conv", P.any("cpu.depthwise") @ "taps", w, bias, residual, slope))
def fuse_separable(node: Node, taps: Node, pick: Any) -> Value | No:
    """Compute [1x1,] depthwise and 1x1 convolution together, a few lines at a time, if the tensors
    between them exceed the cache.
    """
    if why := _why_not_product(node) or _why_not_taps(taps):
        return no(why)
    if node.inputs[3] is taps.outputs[0]:
        return no("the depthwise result is also the residual")
    pair = Block(taps, node, None)
    before = _expansion(taps.inputs[0])
    choices = {PAIR: pair} if before is None else {PAIR: pair, BLOCK: Block(taps, node, before)}
    paying = [choice for choice, block in choices.items() if block.pays()]
    guess = max(paying, key=lambda choice: choices[choice].between, default=UNFUSED)
    after = _next(node)
    if (
        after is not None
        and after.pays()
        and after.between > max(b.between for b in choices.values())
    ):
        return no(f"the block that begins here saves more: {after.between / 1e6:.2g} MB")
    choice = pick((UNFUSED, *choices), guess)
    if choice == UNFUSED:
        return no(f"{pair.between / 1e6:.2g} MB between the layers cost no time")
    return _made(choices[choice])


def _made(block: Block) -> Value:
    last, taps, expand = block.last, block.taps, block.expand
    ends = [*last.inputs, None, None, None][:5]
    inner = {"taps_act": taps.attrs["act"], "taps_args": taps.attrs["act_args"]}
    x, w, bias = (taps.inputs[0], None, None) if expand is None else expand.inputs[:3]
    if expand is not None:
        inner |= {"expand_act": expand.attrs["act"], "expand_args": expand.attrs["act_args"]}
    attrs = {k: last.attrs[k] for k in ("channels", "act", "act_args", "add_last")}
    window = {k: taps.attrs[k] for k in ("stride", "pad")}
    result: Value = separable(
        x,
        *ends[1:],
        taps.inputs[1],
        taps.inputs[2],
        w,
        bias,
        origin=last.origin,
        **attrs,
        **window,
        **inner,
    )
    return result


SEPARABLE: tuple[Rule, ...] = (fuse_separable,)
