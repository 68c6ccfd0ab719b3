"""`ncc`, the command line of nncase 1.x: compile a model, or run a kmodel on a dataset."""

from __future__ import annotations

import argparse
import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from intaglio.compat.log import Log
from intaglio.compat.nncase import dataset
from intaglio.compat.nncase.compiler import Compiler, input_types
from intaglio.compat.nncase.options import COMPILE, CompileOptions, ImportOptions, PTQTensorOptions
from intaglio.compat.nncase.runtime_tensor import RuntimeTensor
from intaglio.compat.nncase.settings import TARGETS
from intaglio.compat.nncase.simulator import Simulator, simulated_inputs
from intaglio.errors import BadFile, BadInput, did_you_mean
from intaglio.files import write_atomically

VERSION = "1.9.0"
FORMATS = ("tflite", "onnx", "caffe")
METHODS = ("no_clip", "l2", "kld_m0", "kld_m1", "kld_m2", "cdf")
LISTS = ("mean", "std", "input_range", "output_range", "input_shape")
SWITCHES = (
    "preprocess",
    "swapRB",
    "use-mse-quant-w",
    "split-w-to-act",
    "is-fpga",
    "dump-ir",
    "dump-asm",
    "dump-quant-error",
    "dump-import-op-range",
    "benchmark-only",
)
COMMANDS = ("compile", "infer")


class _Parser(argparse.ArgumentParser):
    """A parser whose mistakes are errors of one line."""

    def error(self, message: str) -> NoReturn:
        unknown = re.findall(r"unrecognized arguments: (\S+)", message)
        hint = did_you_mean(unknown[0], _flags(self)) if unknown else ""
        raise BadInput(f"{message}{hint or f'; see `{self.prog} --help`'}")


def _flags(of: argparse.ArgumentParser) -> list[str]:
    """The options of a parser and of its commands."""
    found = [o for a in of._actions for o in a.option_strings]
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            found += [o for one in action.choices.values() for o in _flags(one)]
    return found


def parser() -> argparse.ArgumentParser:
    """The options of both commands."""
    top = _Parser(prog="ncc", description="Compile neural networks to kmodels, and run them.")
    top.add_argument("-v", "--version", action="version", version=f"ncc {VERSION} (Intaglio)")
    both = top.add_subparsers(dest="command", metavar="{compile,infer}", parser_class=_Parser)
    c = both.add_parser("compile", help="compile a model to a kmodel", allow_abbrev=False)
    c.add_argument("input_file", help="model file")
    c.add_argument("output_file", help="kmodel to write")
    c.add_argument("-i", "--input-format", required=True, choices=FORMATS, help="format")
    c.add_argument("-t", "--target", required=True, help=" | ".join(TARGETS))
    c.add_argument("-o", "--output-format", default="kmodel", help="kmodel (0.2 only)")
    c.add_argument("--input-prototxt", help="prototxt of a Caffe model")
    c.add_argument("--output-arrays", default="", help="tensors that become outputs: a,b")
    c.add_argument("--quant-type", default="uint8", help="activations: uint8 | int8 | int16")
    c.add_argument("--w-quant-type", default="uint8", help="weights: uint8 | int8 | int16")
    c.add_argument("--dataset", help="folder of calibration samples; the model is quantised")
    c.add_argument("--dataset-format", default="image", choices=dataset.FORMATS, help="of it")
    c.add_argument("--calibrate-method", default="no_clip", help=" | ".join(METHODS))
    for name in SWITCHES:
        key = name.replace("-", "_")
        c.add_argument(f"--{name}", action="store_true", dest=key, help=COMPILE[key][1])
    for name in ("mean", "std", "input-range", "output-range", "input-shape"):
        key = name.replace("-", "_")
        c.add_argument(f"--{name}", metavar='"N N N"', help=COMPILE[key][1])
    for name in ("input-type", "output-type", "input-layout", "output-layout", "model-layout"):
        c.add_argument(f"--{name}", help=COMPILE[name.replace("-", "_")][1])
    c.add_argument("--letterbox-value", type=float, default=0.0, help="padding of a letterbox")
    c.add_argument("--tcu-num", type=int, default=0, help=COMPILE["tcu_num"][1])
    c.add_argument("--dump-dir", default="", help="folder of all dumps")
    c.add_argument("--dump-range-dataset", help="ignored: see --dump-import-op-range")
    c.add_argument("--dump-range-dataset-format", choices=dataset.FORMATS, help="ignored")
    i = both.add_parser("infer", help="run a kmodel on a dataset", allow_abbrev=False)
    i.add_argument("input_file", help="kmodel")
    i.add_argument("output_path", help="folder of the results, one .bin for each sample")
    i.add_argument("--dataset", required=True, help="folder of samples")
    i.add_argument("--dataset-format", default="image", choices=dataset.FORMATS, help="of it")
    i.add_argument("--input-layout", default="NCHW", choices=("NCHW", "NHWC"), help="of pictures")
    return top


def main(arguments: Sequence[str], log: Log) -> int:
    """Run a command; errors are exceptions of one line."""
    top = parser()
    if not arguments:
        top.print_help()
        return 0
    if arguments[0][:1] != "-" and arguments[0] not in COMMANDS:
        hint = did_you_mean(arguments[0], COMMANDS)
        raise BadInput(f"no command is called '{arguments[0]}'; it is compile or infer{hint}")
    given = top.parse_args(list(arguments))
    if given.command is None:
        top.print_help()
        return 0
    return _compile(given) if given.command == "compile" else _infer(given)


def _compile(given: argparse.Namespace) -> int:
    if given.output_format != "kmodel":
        raise BadInput(f"--output-format is '{given.output_format}'; only kmodel is written")
    options = _options(given)
    compiler = Compiler(options)
    stages = itertools.count(1)
    print(f"{next(stages)}. Import graph...")
    _import(compiler, given)
    if given.dataset:
        print(f"{next(stages)}. Read the calibration dataset...")
        types = input_types(compiler)
        layout = options.input_layout if options.preprocess else ""
        samples = dataset.read(given.dataset, given.dataset_format, types, layout)
        ptq: Any = PTQTensorOptions()
        ptq.calibrate_method = given.calibrate_method
        ptq.quant_type, ptq.w_quant_type = given.quant_type, given.w_quant_type
        ptq.samples_count = len(samples)
        ptq.set_tensor_data([[s[name] for s in samples] for name in types])
        compiler.use_ptq(ptq)
    print(f"{next(stages)}. Optimize, quantize and schedule...")
    compiler.compile()
    print(f"{next(stages)}. Generate code...")
    data = compiler.gencode_tobytes()
    write_atomically(given.output_file, data)
    _summary(data)
    return 0


def _options(given: argparse.Namespace) -> Any:
    options: Any = CompileOptions()
    options.target = given.target
    for name in SWITCHES:
        key = name.replace("-", "_")
        setattr(options, key, getattr(given, key))
    for name in LISTS:
        if (text := getattr(given, name)) is not None:
            setattr(options, name, _numbers(name, text))
    for name in ("output_layout", "model_layout", "output_type"):
        if (text := getattr(given, name)) is not None:
            setattr(options, name, text)
    kind = given.input_type or "default"
    options.input_type = ("uint8" if given.dataset else "float32") if kind == "default" else kind
    options.input_layout = given.input_layout or "NCHW"
    options.letterbox_value = given.letterbox_value
    if given.dump_dir:
        options.dump_dir = given.dump_dir
    if options.preprocess and not options.input_shape:
        raise BadInput('--preprocess needs --input-shape, such as --input-shape "1 3 224 224"')
    if options.preprocess and not options.input_range:
        raise BadInput('--preprocess needs --input-range, such as --input-range "0 1"')
    return options


def _numbers(name: str, text: str) -> list[Any]:
    words = re.split(r"[\s,]+", text.strip(" []()"))
    try:
        return [int(w) if name == "input_shape" else float(w) for w in words if w]
    except ValueError:
        flag = name.replace("_", "-")
        raise BadInput(f"--{flag} is '{text}'; give numbers in quotes: \"0 0 0\"") from None


def _import(compiler: Compiler, given: argparse.Namespace) -> None:
    content = _read(given.input_file)
    options = ImportOptions()
    options.output_arrays = given.output_arrays
    if given.input_format == "tflite":
        compiler.import_tflite(content, options)
    elif given.input_format == "onnx":
        compiler.import_onnx(content, options)
    elif given.input_prototxt is None:
        raise BadInput("a Caffe model has two files; give --input-prototxt FILE.prototxt")
    else:
        compiler.import_caffe(content, _read(given.input_prototxt))


def _read(path: str) -> bytes:
    place = Path(path)
    if not place.is_file():
        raise BadFile(f"there is no file '{place}' (in {Path.cwd()}); check the path")
    return place.read_bytes()


def _summary(data: bytes) -> None:
    simulator = Simulator()
    simulator.load_model(data)
    print("\nSUMMARY")
    for title, count, desc, shape in (
        ("INPUTS", simulator.inputs_size, simulator.get_input_desc, simulator.get_input_shape),
        ("OUTPUTS", simulator.outputs_size, simulator.get_output_desc, simulator.get_output_shape),
    ):
        print(title)
        for i in range(count):
            print(f"{i}\t{desc(i).dtype}{shape(i)}")
    print(f"MODEL\t{len(data):,} bytes")


def _infer(given: argparse.Namespace) -> int:
    simulator = Simulator()
    simulator.load_model(_read(given.input_file))
    types = simulated_inputs(simulator)
    folder = Path(given.output_path)
    folder.mkdir(parents=True, exist_ok=True)
    for path in dataset.files(given.dataset):
        sample = dataset.one(path, given.dataset_format, types, given.input_layout)
        for i, array in enumerate(sample.values()):
            simulator.set_input_tensor(i, RuntimeTensor.from_numpy(array))
        simulator.run()
        results = [simulator.get_output_tensor(i) for i in range(simulator.outputs_size)]
        data = b"".join(r.to_numpy().tobytes() for r in results)
        write_atomically(folder / f"{path.stem}.bin", data)
    return 0
