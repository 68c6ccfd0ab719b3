"""cpu.separable: [1x1,] depthwise and 1x1 convolution as one op, computed in bands of lines."""

from __future__ import annotations

from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.ops.registry import op
from intaglio.targets.cpu.conv import conv, depthwise
from intaglio.targets.cpu.epilogue import FUSABLE, Floats
from intaglio.targets.cpu.packing import Ints

ONE = {"kernel": (1, 1), "stride": (1, 1), "pad": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}


def _inner_act(act: str, args: Floats) -> dict[str, object]:
    if act not in ("none", *FUSABLE):
        raise BadInput(f"activation {act!r} is not supported inside cpu.separable")
    return {"act": act, "act_args": args, "add_last": False, "made": "same"}


def _made(t: Type | list[Type]) -> Value:
    assert isinstance(t, Type)
    return Value(t)


def _separable_type(
    x: Value,
    w: Value,
    bias: Value | None,
    residual: Value | None,
    slope: Value | None,
    taps: Value | None,
    taps_bias: Value | None,
    expand: Value | None,
    expand_bias: Value | None,
    *,
    channels: int,
    stride: Ints,
    pad: Ints,
    act: str,
    act_args: Floats,
    add_last: bool,
    taps_act: str,
    taps_args: Floats,
    expand_act: str,
    expand_args: Floats,
) -> Type:
    if x.type.rank != 4 or x.dtype != "f32" or taps is None or taps.type.rank != 3:
        raise BadInput(f"cpu.separable takes an f32 image [n, h, w, c] and taps, not {x.type}")
    if 0 in x.shape[1:]:
        raise BadInput(f"cpu.separable: the image {x.type} is empty")
    if expand is None and expand_bias is not None:
        raise BadInput("cpu.separable: expand_bias needs expand")
    if expand is not None:
        x = _made(
            conv.infer(
                x,
                expand,
                expand_bias,
                None,
                None,
                channels=taps.shape[-1],
                **ONE,
                **_inner_act(expand_act, expand_args),
            )
        )
    x = _made(
        depthwise.infer(
            x,
            taps,
            taps_bias,
            None,
            None,
            stride=stride,
            pad=pad,
            dilation=(1, 1),
            **_inner_act(taps_act, taps_args),
        )
    )
    return _made(
        conv.infer(
            x,
            w,
            bias,
            residual,
            slope,
            channels=channels,
            **ONE,
            act=act,
            act_args=act_args,
            add_last=add_last,
            made="same",
        )
    ).type


def _separable_macs(node: Node) -> int:
    x, taps, expand = node.inputs[0], node.inputs[5], node.inputs[7]
    assert x is not None
    assert taps is not None
    high, wide, middle = taps.shape
    result = node.outputs[0]
    pixels = result.type.size // max(result.shape[-1], 1)
    macs = pixels * middle * (high * wide + result.shape[-1])
    return macs if expand is None else macs + x.type.size * middle


@op(_separable_type, name="cpu.separable", macs=_separable_macs)
def separable(
    x: Array,
    w: Array,
    bias: Array | None = None,
    residual: Array | None = None,
    slope: Array | None = None,
    taps: Array | None = None,
    taps_bias: Array | None = None,
    expand: Array | None = None,
    expand_bias: Array | None = None,
    *,
    channels: int,
    stride: Ints,
    pad: Ints,
    act: str = "none",
    act_args: Floats = (),
    add_last: bool = False,
    taps_act: str = "none",
    taps_args: Floats = (),
    expand_act: str = "none",
    expand_args: Floats = (),
) -> Array:
    """[1x1 convolution by `expand`,] depthwise by `taps` [window, c], 1x1 by `w`.

    The 1x1 weights are packed as for cpu.conv. Each part has its own bias and activation.
    """
    assert taps is not None
    if expand is not None:
        x = conv.body(
            x,
            expand,
            expand_bias,
            channels=taps.shape[-1],
            **ONE,
            act=expand_act,
            act_args=expand_args,
        )
    y = depthwise.body(
        x,
        taps,
        taps_bias,
        stride=stride,
        pad=pad,
        dilation=(1, 1),
        act=taps_act,
        act_args=taps_args,
    )
    result: Array = conv.body(
        y,
        w,
        bias,
        residual,
        slope,
        channels=channels,
        **ONE,
        act=act,
        act_args=act_args,
        add_last=add_last,
    )
    return result
