"""bmneto, bmnetp, bmnetc, bmnett, bmnetd and bmnetu: from a model file to compilation.bmodel.

bmnetu reads the .int8umodel that ufw.cali.cali_model writes. The others convert in floats, for
which no bmodel is written: the result is a package of Intaglio.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import intaglio
from intaglio.compat.log import Log
from intaglio.compat.tpu_mlir import module_file
from intaglio.compat.tpu_mlir.chip_file import UnsupportedEnd, compile_file, holds_floats
from intaglio.compat.tpu_mlir.chips import chip_of
from intaglio.compat.tpu_mlir.module_file import Module, Pictures
from intaglio.compat.tpu_mlir.option_table import Command, option, shapes, truth, words
from intaglio.compat.tpu_mlir.samples import inputs_of
from intaglio.compat.tpu_mlir.tensor_names import rename, vendor_names
from intaglio.errors import BadFile, BadInput, Unsupported
from intaglio.files import write_atomically
from intaglio.frontends import sniff
from intaglio.ir import Graph
from intaglio.targets.chip import Chip

FORMATS = {  # of each front end
    "bmneto": ("ONNX",),
    "bmnetp": ("TorchScript", "torch.export", "PyTorch"),
    "bmnetc": ("Caffe",),
    "bmnett": ("TensorFlow", "TensorFlow SavedModel"),
    "bmnetd": ("Darknet",),
}
TARGETS = "BM1684X, BM1688 or BM1690"  # whose files hold floats, too
TUNING = "ignored: it tunes the vendor's compiler"
MODEL = (
    option("--model", "the model file", required=True),
    option("--weight --weights", "the file with the weights of a Caffe or Darknet model"),
    option("--net_name", "the name of the network; by default that of the file", default=""),
    option("--input_names", "inputs, which the shapes belong to", words, default=[]),
    option("--output_names", "tensors that become the outputs", words, default=[]),
    option("--target", "BM1684X, BM1688, BM1690, or BM1684: int8", default="BM1684X"),
)
COMPILER = (
    option("--opt", TUNING, int, default=1),
    option("--dyn", "refused: shapes are fixed; leave it out", truth, default=False, nargs="?"),
    option("--cmp", "ignored: results are compared by cali_model", truth, default=True, nargs="?"),
    option("--enable_profile", TUNING, truth, default=False, nargs="?"),
    option("--descs", "ignored: types of inputs are those of the model", default=""),
    option("--desc", "ignored: types of inputs are those of the model", default=""),
    option("--mode", TUNING, default="compile"),
    option("--log_dir", TUNING, default=""),
    option("--v", TUNING, default=""),
)
BMNET = Command(
    "bmneto",
    "Converts a model in floats.",
    (
        *MODEL,
        option("--shapes", "shapes in the order of the inputs", shapes, default=[]),
        option("--outdir", "the folder to write", default="compilation"),
        *COMPILER,
    ),
)
BMNETU = Command(
    "bmnetu",
    "Compiles the .int8umodel of cali_model into compilation.bmodel.",
    (
        option("--model", "the .prototxt beside the weights, or nothing", default=""),
        option("--weight --weights", "the .int8umodel", required=True),
        option("--net_name", "the name of the network", default=""),
        option("--target", "BM1684X, BM1688, BM1690, or BM1684: int8", default="BM1684X"),
        option("--prec", "INT8", default="INT8"),
        option("--max_n", "refused: the batch is that of cali_model; leave it out", int),
        option("--outdir", "the folder to write", default="compilation"),
        *COMPILER,
    ),
)


def dashed(arguments: Sequence[str]) -> list[str]:
    """Options as tpu-nntc writes them, -opt=1, with two dashes.

    Options whose values are options themselves, such as --convert_bmodel_cmd_opt, take the next
    word as it is.
    """
    found: list[str] = []
    for word in arguments:
        if found and found[-1].endswith("_opt"):
            found[-1] += f"={word}"
        else:
            found.append(re.sub(r"^-(?=[A-Za-z_]{2,})", "--", word))
    return found


def load(given: argparse.Namespace, given_shapes: Sequence[Sequence[int]], tool: str) -> Module:
    """The network of a model file, with the names of tpu-mlir."""
    path = Path(given.model)
    if not path.exists():
        raise BadFile(f"--model: there is no file '{path}'; check the path")
    kind = sniff(path)
    if tool in FORMATS and kind not in FORMATS[tool]:
        other = next((t for t, kinds in FORMATS.items() if kind in kinds), "model_transform")
        raise BadInput(f"'{path}' is a {kind} file, {tool} reads {FORMATS[tool][0]}; use {other}")
    keywords: dict[str, Any] = {"weights": given.weight} if given.weight else {}
    if given.output_names:
        keywords["outputs"] = given.output_names
    if given_shapes:
        names = given.input_names or _names(path, keywords)
        if len(names) != len(given_shapes):
            raise BadInput(
                f"{len(given_shapes)} shapes for {len(names)} inputs ({', '.join(names)}); give a "
                "shape for each"
            )
        keywords["shapes"] = {n: tuple(s) for n, s in zip(names, given_shapes, strict=True)}
    graph: Graph = intaglio.load(path, **keywords)
    graph.name = given.net_name or path.stem
    rename(graph, vendor_names(path))
    return Module(graph.name, graph, path.name, Pictures())


def _names(path: Path, keywords: dict[str, Any]) -> list[str]:
    if sniff(path) == "ONNX":
        from intaglio.compat.onnx_file import onnx_inputs

        return list(onnx_inputs(path))
    return [v.name for v in inputs_of(intaglio.load(path, **keywords))]


def _convert(tool: str, arguments: Sequence[str], log: Log) -> int:
    """compilation.bmodel in floats; a package if a layer is in the way."""
    given = BMNET.parse(dashed(arguments), log)
    chip = chip_of(given.target)
    module = load(given, given.shapes, tool)
    folder = Path(given.outdir)
    folder.mkdir(parents=True, exist_ok=True)
    why = ""
    if holds_floats(chip):
        try:
            file = compile_file(module.graph.copy(), module.graph, chip, "f32")
        except Unsupported as e:
            why = " ".join(str(e).split())
            log.warning(f"{tool}: {why}")
        else:
            path = folder / "compilation.bmodel"
            write_atomically(path, file.data)
            log.info(f"{path}: {len(file.data):,} bytes for {chip.name}, in f32")
            return 0
    remedy = "end the network before that layer by --output_names for a bmodel"
    precision = "f16" if "f16" in chip.types else None
    kind = "float16" if precision else "float32"
    remedy = remedy if why else f"give another --target for a bmodel: {TARGETS}"
    _save_package(tool, module.graph, chip, folder, f"in {kind} instead", remedy, log, precision)
    return 0


def _save_package(
    tool: str,
    graph: Graph,
    chip: Chip,
    folder: Path,
    kind: str,
    remedy: str,
    log: Log,
    precision: str | None = None,
) -> Path:
    """compilation.itg, where no bmodel can be written."""
    path = folder / "compilation.itg"
    intaglio.compile(graph, target=chip.name, precision=precision, npu_code="own").save(path)
    log.warning(f"{tool}: {path} is a package of Intaglio {kind}, for `intaglio run`; {remedy}")
    return path


def bmneto(arguments: Sequence[str], log: Log) -> int:
    """ONNX."""
    return _convert("bmneto", arguments, log)


def bmnetp(arguments: Sequence[str], log: Log) -> int:
    """PyTorch."""
    return _convert("bmnetp", arguments, log)


def bmnetc(arguments: Sequence[str], log: Log) -> int:
    """Caffe."""
    return _convert("bmnetc", arguments, log)


def bmnett(arguments: Sequence[str], log: Log) -> int:
    """TensorFlow."""
    return _convert("bmnett", arguments, log)


def bmnetd(arguments: Sequence[str], log: Log) -> int:
    """Darknet."""
    return _convert("bmnetd", arguments, log)


def bmpaddle(arguments: Sequence[str], log: Log) -> int:
    """Paddle; refused."""
    raise BadInput("Paddle files are not read; export to ONNX by paddle2onnx, then use bmneto")


def bmnetm(arguments: Sequence[str], log: Log) -> int:
    """MXNet; refused."""
    raise BadInput("MXNet files are not read; export to ONNX by mxnet.onnx, then use bmneto")


def bmnetu(arguments: Sequence[str], log: Log) -> int:
    """An .int8umodel of cali_model."""
    given = BMNETU.parse(dashed(arguments), log)
    if given.prec.upper() != "INT8":
        raise BadInput(f"-prec is {given.prec}; an .int8umodel is compiled in INT8")
    chip = chip_of(given.target)
    module = module_file.read(given.weight)
    write_bmodel(module, module.graph, chip, given.outdir, log)
    return 0


def write_bmodel(module: Module, quantised: Graph, chip: Chip, folder: str, log: Log) -> Path:
    """Compile a quantised graph into compilation.bmodel of a folder; a package for other chips."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    if chip.file != "bmodel":
        remedy = f"give another target for a bmodel: {TARGETS}"
        return _save_package("bmnetu", quantised, chip, Path(folder), "instead", remedy, log)
    try:
        made = compile_file(quantised, module.graph, chip)
    except UnsupportedEnd:  # Softmax and the like are computed in floats
        if not holds_floats(chip):
            raise
        made = compile_file(quantised, module.graph, chip, "f32")
    path = Path(folder, "compilation.bmodel")
    write_atomically(path, made.data)
    log.info(f"{path}: {len(made.data):,} bytes for {chip.name}")
    return path
