"""The CPU target: its kernels' capabilities, lowering rules, fusions and algorithm choices."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from intaglio import native
from intaglio.cpu_isa import bits_of
from intaglio.errors import BadInput, option
from intaglio.ir import Node
from intaglio.rewrite import Rule
from intaglio.targets import Target, replace
from intaglio.targets.cpu.attention import BF16_ATTENTION
from intaglio.targets.cpu.bf16 import BF16
from intaglio.targets.cpu.chain import CHAIN
from intaglio.targets.cpu.channel_shuffle import CHANNEL_SHUFFLE_FUSE
from intaglio.targets.cpu.dynamic_quantize import DYNAMIC_CONVOLUTIONS
from intaglio.targets.cpu.epilogue_fusion import FUSE
from intaglio.targets.cpu.f16 import F16
from intaglio.targets.cpu.grouped_conv import why_not_grouped
from intaglio.targets.cpu.half_precision import LAYER_BF16, LAYER_F16
from intaglio.targets.cpu.lower import LOWER
from intaglio.targets.cpu.packing import PANEL
from intaglio.targets.cpu.qconv_choice import WINOGRAD_INT8, WINOGRAD_INT8_PAIRS
from intaglio.targets.cpu.qdepthwise_fusion import QDEPTHWISE_FUSE
from intaglio.targets.cpu.qlinear import CHOOSE_INT8, FUSE_INT8, PIECEWISE_TABLES
from intaglio.targets.cpu.recurrent import RECURRENT_FUSE
from intaglio.targets.cpu.separable_choice import SEPARABLE
from intaglio.targets.cpu.winograd_choice import conv_as_winograd, conv_as_winograd_or_bf16
from intaglio.targets.cpu.xnor_choice import BINARY, BINARY_AVX2
from intaglio.targets.precision import Precision, Stored, floats

CACHE_INT8 = 2 << 20  # of activations that stay in the L2 and a share of the L3 cache
CHOOSE = (conv_as_winograd,)  # faster algorithms that reorder sums
CHOOSE_BF16 = (conv_as_winograd_or_bf16,)
# Half-precision rules and algorithm choices. f16 has no Winograd: its weights would take back the
# memory that f16 saves.
BY_PRECISION = {"f32": ((), CHOOSE), "bf16": (BF16, CHOOSE_BF16), "f16": (F16, ())}


# ---- preferred replacements --------------------------------------------------------------------
def _few_channels(node: Node) -> bool:
    """Does a transposed convolution leave so much of a panel empty that one convolution for all
    positions and a copy to their places are faster?
    """
    w = node.inputs[1]
    most = PANEL // 4 if node.attrs["groups"] > 1 else PANEL // 4 - 1
    return w is not None and w.shape[1] <= most


def _large_window(node: Node) -> bool:
    """Do two one-dimensional max poolings visit at least ten elements fewer?"""
    kernel, stride = node.attrs["kernel"], node.attrs["stride"]
    return bool(kernel[0] * kernel[1] - (kernel[1] * stride[0] + kernel[0]) >= 10)


REPLACE = (
    *replace.estimated(lambda node: why_not_grouped(node) is not None, replace.join_groups(PANEL)),
    *replace.estimated(_large_window, replace.separate_max_pool(1)),
    *replace.estimated(_few_channels, replace.conv_transpose_as_depth_to_space),
)


# ---- precisions ----------------------------------------------------------------------------------
_INT8 = Stored(("i8", "u8", "i4", "u4"), zeros=True, grains=("channel", "tensor"))
_INT16 = Stored((*_INT8.types, "i16"), zeros=True, grains=_INT8.grains)


def _conv_cost(
    direct: float, winograd: float, grouped: float | None = None
) -> Callable[[Node], float | None]:
    """Costs of direct convolutions, of those that Winograd computes, and of grouped ones."""

    def cost(node: Node) -> float | None:
        if node.op != "conv":
            return None
        if node.attrs["groups"] != 1:
            return grouped
        w = node.inputs[1]
        around = {*node.attrs["stride"], *node.attrs["dilation"]}
        return winograd if w is not None and w.shape[2:] == (3, 3) and around == {1} else direct

    return cost


# Costs: ResNet-18 and SqueezeNet 1.1 on one thread of an EPYC with AVX512-VNNI took 2.6 and 2.7
# times int8's time in f32, 2.0 in bf16, 4.4 and 3.6 in f16, 5.3 and 7.0 in int16. The costs of
# convolutions are from YOLOv8n on that machine: 1x1 and strided ones direct, 3x3 by Winograd.
# Grouped convolutions multiply in f32 in any case: bf16 only adds rounding.
PRECISIONS = (
    Precision(
        "int8", Stored(("i8", "u8"), zeros=True), _INT8, table_bits=10, cost_of=_conv_cost(1.0, 0.6)
    ),
    Precision("int16", Stored(("i16",), zeros=True), _INT16, cost=6.0),
    floats("f32", 2.7, _conv_cost(3.7, 1.15)),
    floats("f16", 4.0),
)
BF16_LAYERS = floats("bf16", 2.0, _conv_cost(2.1, 1.2, grouped=4.0))
WEIGHT_ONLY = Stored(("i8", "u8", "i4", "u4"), zeros=True, grains=("channel", "group"))
DYNAMIC = ("matmul", "gemm", "lstm", "gru")


# ---- the target ----------------------------------------------------------------------------------
VNNI, VBMI = map(bits_of, ("avx512-vnni", "avx512-vbmi"))
BF16_PRODUCTS = tuple(map(bits_of, ("avx512-bf16", "neon-bf16")))
AVX2 = bits_of("avx2")
NEON = bits_of("neon") | bits_of("armv7")


def target(isa: str | int | None = None, precision: str = "f32") -> Target:
    """A CPU with the named instruction set (or ISA bits); None means this machine's."""
    bits = native.machine() if isa is None else bits_of(isa) if isinstance(isa, str) else isa
    has_bf16 = any(not ~bits & needed for needed in BF16_PRODUCTS)
    if precision == "bf16" and not has_bf16:
        raise BadInput(
            "precision bf16 needs a CPU with AVX512-BF16 or ARM's BF16; compile with f32, or with "
            f"{option('isa', 'avx512-vnni-bf16')} or neon-bf16 for a machine that has it"
        )
    pairs = BF16_ATTENTION if not ~bits & BF16_PRODUCTS[0] else ()
    layers = (*PRECISIONS, BF16_LAYERS) if has_bf16 else PRECISIONS
    narrow, choose = BY_PRECISION[precision]
    halves = (LAYER_F16, LAYER_BF16) if has_bf16 else (LAYER_F16,)
    fuse = (*CHANNEL_SHUFFLE_FUSE, *QDEPTHWISE_FUSE, *FUSE, *FUSE_INT8)
    fuse = (*fuse, *(RECURRENT_FUSE if precision == "f32" else ()))
    fuse = (*fuse, *(() if ~bits & VBMI else PIECEWISE_TABLES))
    tiles: tuple[Rule, ...] = WINOGRAD_INT8_PAIRS if ~bits & VNNI else WINOGRAD_INT8
    if bits & NEON:
        tiles = ()  # products of bytes take fewer instructions than those of 16 bits
    dynamic = () if ~bits & VNNI else DYNAMIC_CONVOLUTIONS
    signs = BINARY_AVX2 if bits == AVX2 else BINARY
    block = (*tiles, *(SEPARABLE if precision == "f32" else ()))
    return Target(
        "cpu",
        partial(native.why_not, isa=bits),
        (*pairs, *signs, *LOWER),
        fuse,
        block,
        (*CHAIN, *halves),
        bits,
        choose=(*dynamic, *choose, *CHOOSE_INT8),
        narrow=narrow,
        replace=REPLACE,
        precision=precision,
        image_cache=CACHE_INT8,
        precisions=layers,
        weight_only=WEIGHT_ONLY,
        dynamic=DYNAMIC,
    )
