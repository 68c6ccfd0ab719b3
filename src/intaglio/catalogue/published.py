"""The catalogue: networks, their builders and their published figures with the source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from intaglio.catalogue import classic, mobile, segmentation, shuffle, transformer
from intaglio.catalogue.builder import Builder
from intaglio.errors import BadInput, did_you_mean
from intaglio.ir import Graph, Value

TORCHVISION = "torchvision weights metadata (num_params, _ops)"
TIMM = "timm results/benchmark-infer (param_count, infer_gmacs)"
TPU = "tensorflow/tpu models/official/efficientnet/lite README"


@dataclass(frozen=True)
class Network:
    """A network of the catalogue; published parameters in millions, MACs in 10^9."""

    name: str
    build: Callable[[Builder, Value], Value]
    parameters: float | None
    macs: float | None
    source: str
    size: int = 224


def _tv(
    name: str, parameters: float, macs: float, build: Callable[..., Value], *of: object
) -> Network:
    return Network(name, lambda b, x: build(b, x, *of), parameters / 1e6, macs, TORCHVISION)


def _lite(i: int, width: float, depth: float, parameters: float, macs: float, size: int) -> Network:
    def make(b: Builder, x: Value) -> Value:
        return mobile.efficientnet(b, x, width, depth, True)

    return Network(f"efficientnet_lite{i}", make, parameters, macs, TPU, size)


_ALL = [
    _tv("alexnet", 61100840, 0.714, classic.alexnet),
    _tv("vgg11", 132863336, 7.609, classic.vgg, 11),
    _tv("vgg13", 133047848, 11.308, classic.vgg, 13),
    _tv("vgg16", 138357544, 15.470, classic.vgg, 16),
    _tv("vgg19", 143667240, 19.632, classic.vgg, 19),
    _tv("resnet18", 11689512, 1.814, classic.resnet, 18),
    _tv("resnet34", 21797672, 3.664, classic.resnet, 34),
    _tv("resnet50", 25557032, 4.089, classic.resnet, 50),
    _tv("resnet101", 44549160, 7.801, classic.resnet, 101),
    _tv("resnet152", 60192808, 11.514, classic.resnet, 152),
    _tv("wide_resnet50_2", 68883240, 11.398, classic.resnet, 50, 2),
    _tv("resnext50_32x4d", 25028904, 4.230, classic.resnet, 50, 1, 32, 4),
    _tv("densenet121", 7978856, 2.834, classic.densenet, 121),
    _tv("densenet169", 14149480, 3.360, classic.densenet, 169),
    _tv("densenet201", 20013928, 4.291, classic.densenet, 201),
    _tv("googlenet", 6624904, 1.498, classic.googlenet),
    _tv("squeezenet1_0", 1248424, 0.819, classic.squeezenet, "1_0"),
    _tv("squeezenet1_1", 1235496, 0.349, classic.squeezenet, "1_1"),
    Network("mobilenet_v1", mobile.mobilenet_v1, 4.2, 0.569, "arXiv 1704.04861"),
    _tv("mobilenet_v2", 3504872, 0.301, mobile.mobilenet_v2),
    _tv("mobilenet_v3_large", 5483032, 0.217, mobile.mobilenet_v3, True),
    _tv("mobilenet_v3_small", 2542856, 0.057, mobile.mobilenet_v3, False),
    Network("mobilenet_v4_conv_small", mobile.mobilenet_v4_small, 3.77, 0.19, TIMM),
    _tv("mnasnet0_75", 3170208, 0.215, mobile.mnasnet, 0.75),
    _tv("mnasnet1_0", 4383312, 0.314, mobile.mnasnet, 1.0),
    _tv("mnasnet1_3", 6282256, 0.526, mobile.mnasnet, 1.3),
    _tv("efficientnet_b0", 5288548, 0.386, mobile.efficientnet, 1.0, 1.0, False),
    _lite(0, 1.0, 1.0, 4.7, 0.407, 224),
    _lite(1, 1.0, 1.1, 5.4, 0.631, 240),
    _lite(2, 1.1, 1.2, 6.1, 0.899, 260),
    _lite(3, 1.2, 1.4, 8.2, 1.440, 280),
    _lite(4, 1.4, 1.8, 13.0, 2.640, 300),
    Network("fbnet_c", mobile.fbnet_c, 5.5, 0.375, "arXiv 1812.03443"),
    Network("ghostnet", mobile.ghostnet, 5.2, 0.141, "arXiv 1911.11907"),
    Network("shufflenet_v1_g3", shuffle.shufflenet_v1, None, 0.137, "arXiv 1707.01083"),
    _tv("shufflenet_v2_x0_5", 1366792, 0.04, shuffle.shufflenet_v2, "0_5"),
    _tv("shufflenet_v2_x1_0", 2278604, 0.145, shuffle.shufflenet_v2, "1_0"),
    _tv("shufflenet_v2_x1_5", 3503624, 0.296, shuffle.shufflenet_v2, "1_5"),
    _tv("shufflenet_v2_x2_0", 7393996, 0.583, shuffle.shufflenet_v2, "2_0"),
    Network("peleenet", shuffle.peleenet, 2.8, 0.508, "arXiv 1804.06882"),
    Network("mobilevit_xxs", transformer.mobilevit_xxs, 1.3, 0.4, "arXiv 2110.02178", 256),
    Network("mobilevit_s", transformer.mobilevit_s, 5.6, 2.0, "arXiv 2110.02178", 256),
    Network("efficientformer_l1", transformer.efficientformer_l1, 12.3, 1.3, "arXiv 2206.01191"),
    Network("espnet", segmentation.espnet, 0.364, None, "arXiv 1803.06815", 512),
]
NETWORKS = {n.name: n for n in _ALL}


def find(name: str) -> Network:
    """The network of this name; BadInput with the nearest name if there is none."""
    if name not in NETWORKS:
        hint = did_you_mean(name, NETWORKS, 3) or f"; known are {', '.join(NETWORKS)}"
        raise BadInput(f"the catalogue has no network '{name}'{hint}")
    return NETWORKS[name]


def build(name: str, weights: str = "zeros", size: int | None = None) -> Graph:
    """A network as a graph, with weights of zeros (which take no memory) or "random" ones."""
    network, b = find(name), Builder(weights)
    x = b.input(size or network.size)
    return b.graph(x, network.build(b, x), name)
