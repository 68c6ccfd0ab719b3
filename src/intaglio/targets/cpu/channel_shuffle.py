"""Channel shuffles of channels-last tensors (cpu.deal), fused with slices and concats
around them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.ops import channels_first, channels_last
from intaglio.ops.registry import op
from intaglio.rewrite import No, P, Rule, no, rule

x, parts = P["x parts"]


def _deal_type(*xs: Value, groups: int, start: int, stop: int) -> Type:
    if not xs or any(v.type != xs[0].type for v in xs) or len(xs) not in (1, groups):
        raise BadInput(
            f"cpu.deal takes one tensor or {groups} of equal type, not {[v.type for v in xs]}"
        )
    *rest, channels = xs[0].shape
    if groups < 1 or (len(xs) == 1 and channels % groups):
        raise BadInput(f"{channels} channels are not a multiple of {groups} groups")
    if not 0 <= start <= stop <= channels * len(xs):
        raise BadInput(f"channels {start} to {stop} are not among {channels * len(xs)}")
    return Type(xs[0].dtype, (*rest, stop - start))


@op(_deal_type, name="cpu.deal")
def deal(*xs: Array, groups: int, start: int, stop: int) -> Array:
    """Channels [start, stop) of a channel shuffle over `groups` groups; channels are last."""
    split = np.stack(np.split(xs[0], groups, -1) if len(xs) == 1 else xs, -1)
    every = split.reshape(*split.shape[:-2], split.shape[-2] * groups)
    return np.ascontiguousarray(every[..., start:stop])


@rule(P.channel_shuffle(x))
def channel_shuffle_channels_last(x: Value, node: Node) -> Value | No:
    """Lower channel_shuffle to transpose, cpu.deal, transpose."""
    rank = x.type.rank
    if x.type.dynamic:
        return no(f"{x.type} has dynamic axes")
    if rank < 3:
        return no(f"{x.type} has no spatial axis")
    result = deal(channels_last(x), groups=node.attrs["groups"], start=0, stop=x.shape[1])
    return channels_first(result)


# ---- fusions -------------------------------------------------------------------------------------
SHUFFLED = P.any("cpu.deal") @ "shuffled"


@rule(P.slice(SHUFFLED.shared()))
def slice_into_channel_shuffle(shuffled: Node, node: Node) -> Value | No:
    """Shuffle only the channels that the slice keeps."""
    result, out = shuffled.outputs[0], node.outputs[0]
    if out.shape[:-1] != result.shape[:-1] or result.type.dynamic:
        return no(f"{out.type} is not a slice along the channels of {result.type}")
    start, stop, step = (node.attrs[k][-1] for k in ("start", "stop", "step"))
    kept = range(result.shape[-1])[start:stop:step]
    if kept.step != 1:
        return no(f"the slice has step {kept.step}; 1 is needed")
    first = shuffled.attrs["start"] + (kept.start if len(kept) else 0)
    cut: Value = deal(
        *_values(shuffled), groups=shuffled.attrs["groups"], start=first, stop=first + len(kept)
    )
    return cut


@rule(SHUFFLED)
def concat_into_channel_shuffle(shuffled: Node) -> Value | No | None:
    """Shuffle the operands of a concat directly, without the concat."""
    whole = shuffled.inputs[0]
    assert whole is not None
    joint = whole.producer
    if len(shuffled.inputs) != 1 or joint is None or joint.op != "concat":
        return None
    values = _values(joint)
    if joint.attrs["axis"] % whole.type.rank != whole.type.rank - 1:
        return no("the concat is not along the channels")
    if len(values) != shuffled.attrs["groups"] or any(v.type != values[0].type for v in values):
        return no(f"the {len(values)} operands are not the {shuffled.attrs['groups']} groups")
    direct: Value = deal(*values, **shuffled.attrs)
    return direct


def _values(node: Node) -> list[Any]:
    return [v for v in node.inputs if v is not None]


CHANNEL_SHUFFLE_LOWER: tuple[Rule, ...] = (channel_shuffle_channels_last,)
CHANNEL_SHUFFLE_FUSE: tuple[Rule, ...] = (slice_into_channel_shuffle, concat_into_channel_shuffle)
