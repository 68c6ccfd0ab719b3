"""`python -m rknn.api.rknn_convert`: convert a model by a YAML file, or by options alone."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from intaglio.compat.rknn.toolkit import RKNN
from intaglio.errors import BadFile, BadInput, IntaglioError, did_you_mean

FLAGS = {  # option -> name, or None for a switch
    "-i": "input",
    "--input": "input",
    "-o": "output",
    "--output": "output",
    "-t": "target_platform",
    "--target_platform": "target_platform",
    "-a": "accuracy_analysis",
    "--accuracy_analysis": "accuracy_analysis",
    "-d": "device_id",
    "--device_id": "device_id",
    "-mean": "mean_values",
    "-std": "std_values",
    "-do_Quant": "dataset",
    "-onnx_inputs": "onnx_inputs",
    "-onnx_outputs": "onnx_outputs",
    "-dynamic_input": "dynamic_input",
    "-Quant_algorithm": "quantized_algorithm",
    "-Quant_dtype": "quantized_dtype",
    "-custom_hybrid": "custom_hybrid",
}
SWITCHES = {
    "-e": "eval_perf_memory",
    "--eval_perf_memory": "eval_perf_memory",
    "-v": "verbose",
    "--verbose": "verbose",
    "-RGB2BGR": "quant_img_RGB2BGR",
    "-compress_weight": "compress_weight",
    "-single_core_mode": "single_core_mode",
}
LITERALS = ("mean_values", "std_values", "onnx_inputs", "onnx_outputs", "dynamic_input")
OF_CONFIG = (
    "mean_values",
    "std_values",
    "quant_img_RGB2BGR",
    "quantized_algorithm",
    "quantized_dtype",
    "dynamic_input",
    "compress_weight",
    "single_core_mode",
)
FILES = {  # of `models:` in the YAML file, by platform
    "onnx": ("model_file_path",),
    "tflite": ("model_file_path",),
    "tensorflow": ("model_file_path",),
    "pytorch": ("pt_file_path", "model_file_path"),
    "caffe": ("prototxt_file_path", "caffemodel_file_path"),
    "darknet": ("darknet_cfg_path", "darknet_weights_path"),
}
USAGE = "usage: python -m rknn.api.rknn_convert -t rk3588 -i model.yml|model.onnx -o FOLDER"


def main(arguments: Sequence[str]) -> int:
    """Convert a model; the exit code is 0, or 1 after a line that says what is wrong.

    Deviation: custom_hybrid turns on auto_hybrid; devices are ignored.
    """
    try:
        given = parse(arguments)
        return convert(given)
    except IntaglioError as e:
        print(f"E rknn_convert: {e}", file=sys.stderr)
        return 1


def parse(arguments: Sequence[str]) -> dict[str, Any]:
    """The options by name; BadInput for an unknown one."""
    found: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        flag = rest.pop(0)
        if flag in SWITCHES:
            found[SWITCHES[flag]] = True
        elif flag in FLAGS:
            if rest and not (rest[0].startswith("-") and rest[0] in {**FLAGS, **SWITCHES}):
                found[FLAGS[flag]] = rest.pop(0)
            elif FLAGS[flag] == "device_id":
                found["device_id"] = ""  # the only board
            else:
                raise BadInput(f"{flag} needs a value; {USAGE}")
        else:
            raise BadInput(f"unknown option '{flag}'{did_you_mean(flag, FLAGS)}; {USAGE}")
    for name in LITERALS:
        if name in found:
            try:
                found[name] = ast.literal_eval(found[name])
            except (ValueError, SyntaxError):
                raise BadInput(f"{name} is '{found[name]}'; write a Python list or dict") from None
    for name, flag in (("input", "-i"), ("target_platform", "-t")):
        if name not in found:
            raise BadInput(f"{flag} is missing; {USAGE}")
    return found


def convert(given: Mapping[str, Any]) -> int:
    """Run the steps that the options ask for."""
    path = Path(given["input"])
    if path.suffix in (".yml", ".yaml"):
        return _from_yaml(path, given)
    config = {k: given[k] for k in OF_CONFIG if k in given}
    load: dict[str, Any] = {"model": str(path)}
    if "onnx_inputs" in given:
        load["inputs"] = list(given["onnx_inputs"])
        load["input_size_list"] = list(given["onnx_inputs"].values())
    if "onnx_outputs" in given:
        load["outputs"] = given["onnx_outputs"]
    method = "load_rknn" if path.suffix == ".rknn" else "load_onnx"
    if method == "load_rknn":
        load = {"path": str(path)}
    return _steps(path.stem, given, config, method, load, given.get("dataset"))


def _from_yaml(path: Path, given: Mapping[str, Any]) -> int:
    models = _read_yaml(path)
    kind = str(models.get("platform", "onnx")).lower()
    if kind not in FILES:
        raise BadInput(f"{path}: platform is '{kind}'; it is one of {', '.join(FILES)}")
    files = [path.parent / str(models[k]) for k in FILES[kind] if models.get(k)]
    if not files:
        raise BadInput(f"{path}: {FILES[kind][0]} is missing; give the path of the model")
    parts = models.get("subgraphs") or {}
    sizes = parts.get("input_size_list") or parts.get("input-size-list")
    if sizes:
        sizes = [[int(d) for d in s.split(",")] if isinstance(s, str) else list(s) for s in sizes]
    load: dict[str, Any]
    if kind in ("caffe", "darknet"):
        second = {"caffe": "blobs", "darknet": "weight"}[kind]
        load = {"model": str(files[0])}
        if files[1:]:
            load[second] = str(files[1])
    elif kind == "tensorflow":
        load = {"tf_pb": str(files[0]), "inputs": parts.get("inputs")}
        load |= {"input_size_list": sizes, "outputs": parts.get("outputs")}
    else:
        load = {"model": str(files[0])}
        allowed = {"onnx": ("inputs", "outputs"), "pytorch": ()}.get(kind, ())
        load |= {k: parts[k] for k in allowed if parts.get(k)}
        if sizes and kind in ("onnx", "pytorch"):
            load["input_size_list"] = sizes
    dataset = models.get("dataset")
    dataset = str(path.parent / str(dataset)) if models.get("quantize") and dataset else None
    name = str(models.get("name", path.stem))
    return _steps(name, given, _configs(models), f"load_{kind}", load, dataset)


def _configs(models: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `config`; `channel_mean_value` is "mean mean mean std"."""
    found = dict(models.get("configs") or {})
    if words := found.pop("channel_mean_value", None):
        numbers = [float(w) for w in str(words).split()]
        found["mean_values"] = [numbers[:-1]]
        found["std_values"] = [numbers[-1:] * max(len(numbers) - 1, 1)]
    return found


def _read_yaml(path: Path) -> Mapping[str, Any]:
    import yaml

    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except OSError as e:
        raise BadFile(f"cannot read '{path}': {(e.strerror or '').lower()}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        raise BadFile(f"'{path}' is no YAML: {' '.join(str(e).split())}") from None
    models = content.get("models") if isinstance(content, Mapping) else None
    if not isinstance(models, Mapping):
        raise BadFile(f"'{path}' has no `models:`; write the model's facts below it")
    return models


def _steps(
    name: str,
    given: Mapping[str, Any],
    config: Mapping[str, Any],
    method: str,
    load: Mapping[str, Any],
    dataset: str | None,
) -> int:
    rknn = RKNN(verbose=bool(given.get("verbose")))
    try:
        if method == "load_rknn":
            return _evaluate(rknn, given) if rknn.load_rknn(**load) == 0 else 1
        output = Path(given.get("output") or ".")
        place = output if output.suffix == ".rknn" else output / f"{name}.rknn"
        place.parent.mkdir(parents=True, exist_ok=True)
        if rknn.config(target_platform=given["target_platform"], **config) != 0:
            return 1
        if getattr(rknn, method)(**load) != 0:
            return 1
        hybrid = given.get("custom_hybrid") is not None
        if rknn.build(dataset is not None, dataset, auto_hybrid=hybrid) != 0:
            return 1
        if rknn.export_rknn(str(place)) != 0:
            return 1
        print(f"I wrote {place}")
        return _evaluate(rknn, given)
    finally:
        rknn.release()


def _evaluate(rknn: RKNN, given: Mapping[str, Any]) -> int:
    if given.get("eval_perf_memory"):
        if rknn.init_runtime(perf_debug=True, eval_mem=True) != 0:
            return 1
        if rknn.eval_perf() is None or rknn.eval_memory() is None:
            return 1
    files = given.get("accuracy_analysis")
    return 1 if files and rknn.accuracy_analysis(files.split()) != 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
