"""The screenshots of the documentation: `python -m tests.screenshots docs/assets`.

A slow test takes them too, and checks that the committed ones show pages of the same size.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tests.chromium import screenshot

import intaglio
import intaglio.quant
import intaglio.ui
from intaglio import catalogue
from intaglio.analysis.agreement import usable_inputs
from intaglio.catalogue.builder import Builder
from intaglio.ir import Graph, constant

WIDTH, HEIGHT, SCALE = 1180, 760, 0.8
COLOURS = 64  # of the palette: small files
SHOWN = (
    "shufflenet_v2_x1_0", "ghostnet", "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large",
    "mobilenet_v4_conv_small", "squeezenet1_1", "efficientnet_lite0", "efficientnet_b0",
    "peleenet", "mobilevit_s", "resnet18", "resnet50", "vgg16",
)  # fmt: skip
BREAK = 8  # factor of the scale of the broken layer


def broken_report() -> intaglio.analysis.report.ModelReport:
    """A quantised MobileNetV2 with one scale eight times as large."""
    graph = catalogue.build("mobilenet_v2", "random", size=64)
    data = [usable_inputs(graph, i)[0] for i in range(2)]
    how = {"method": "minmax", "accuracy": None, "rounding": "nearest"}
    made = intaglio.quant.calibrate(graph, data, **how)
    wrong = made.graph.copy()
    values = [
        v for v in wrong.values()
        if v.producer is not None and v.producer.op == "dequantize_linear" and len(v.shape) == 4
        and v.producer.inputs[0].producer is not None and v.name
    ]  # fmt: skip
    real = values[len(values) // 3]
    for node in (real.producer.inputs[0].producer, real.producer):
        wrong.set_input(node, 1, constant(node.inputs[1].data * BREAK))
    return intaglio.report(wrong, made.float_graph, data[:1], name="mobilenet_v2 int8")


def chip_report() -> intaglio.analysis.report.ModelReport:
    """MobileNetV2 on a chip."""
    graph = catalogue.build("mobilenet_v2", "random", size=96)
    return intaglio.report(graph, target="rk3588", accuracy=False, name="mobilenet_v2")


def _crop(page: str, section: str) -> str:
    """The page with one section first."""
    hidden = f"section:not(#{section}), .cards, nav {{ display: none }}"
    style = f"<style>{hidden} body {{ margin: 1em auto }}</style>"
    return page.replace("</head>", f"{style}</head>")


def _small() -> Graph:
    b = Builder("random")
    x = b.input(32)
    y = b.conv(x, 16)
    for _ in range(2):
        y = b.add(y, b.conv(b.depthwise(b.conv(y, 32)), 16, act=None))
    return b.graph(x, b.classifier(y, 10), "small")


def live_page(folder: Path) -> str:
    """The live page of a small network with one layer in floats."""
    intaglio.save_onnx(_small(), folder / "small.onnx")
    bench = intaglio.ui.Workbench(folder / "small.onnx", target="rk3588")
    layer = next(k for k, v in bench.scheme.layers.items() if v == "int8")
    bench.change({layer: "f32"})
    from intaglio.ui.live_page import live_page as page

    html = page(bench)
    bench.close()
    return html


def fits() -> str:
    """Which network fits which chip."""
    from intaglio.analysis.catalogue_table import catalogue_table
    from intaglio.targets import chip

    return catalogue_table(list(chip.names()), SHOWN).svg()


def take(folder: Path, work: Path) -> list[Path]:
    """Write all screenshots into a folder."""
    broken = broken_report().html()
    chip = chip_report().html()
    pages: dict[str, tuple[Callable[[], str], bool, int]] = {
        "report.png": (lambda: broken, False, 1000),
        "report-dark.png": (lambda: broken, True, 1000),
        "report-accuracy.png": (lambda: _crop(broken, "accuracy"), False, 620),
        "report-speed.png": (lambda: _crop(chip, "speed"), False, 620),
        "report-memory.png": (lambda: _crop(broken, "memory"), False, 760),
        "ui.png": (lambda: live_page(work), False, 1000),
        "fits.png": (fits, False, 420),
    }
    found = []
    for name, (make, dark, height) in pages.items():
        page = work / name.replace(".png", ".svg" if name == "fits.png" else ".html")
        page.write_text(make(), "utf-8")
        out = folder / name
        screenshot(page.as_uri(), out, WIDTH if name != "fits.png" else 1400, height, dark)
        _shrink(out)
        found.append(out)
    return found


def _shrink(path: Path) -> None:
    from PIL import Image

    image = Image.open(path).convert("RGB")
    size = (int(image.width * SCALE), int(image.height * SCALE))
    small = image.resize(size, Image.Resampling.LANCZOS)
    small.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as work:
        for path in take(Path(sys.argv[1]), Path(work)):
            print(f"{path}: {path.stat().st_size:,} bytes")
