"""Models and packages that a command reads: opened, compiled or quantised as needed."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

from intaglio import progress
from intaglio.cli import key_options, options, progress_line
from intaglio.errors import BadInput, option
from intaglio.files import open_regular
from intaglio.open_graph import open_ranges


def is_package(path: str) -> bool:
    """Whether the file is a package, by its first bytes; BadInput for a model with keys."""
    found = starts_as_package(path)
    if not found:
        key_options.refuse_keys(path)
    return found


def starts_as_package(path: str) -> bool:
    try:
        if os.path.isdir(path):  # a SavedModel
            return False
        with open_regular(path) as f:
            return f.read(4) == b"ITG1"
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except OSError as e:
        raise BadInput(f"{path}: cannot be read ({e.strerror})") from None


def read_package(path: str, model_options: dict[str, Any]) -> Any:
    """The package in a file; a model file is compiled for this machine first."""
    import intaglio

    arguments = options.load_arguments(**model_options)
    if not is_package(path):
        with progress_line.shown():
            return intaglio.compile(path, **arguments)
    package = load_package(path)
    given = [k for k, v in arguments.items() if v]
    if given == ["dims"]:
        _check_sizes(package, arguments["dims"])
    elif given:
        raise BadInput(
            f"{path} is compiled already; {option(given[0])} is for model files; "
            "leave it out, or give the model file"
        )
    return package


def run_sizes(model_options: dict[str, Any]) -> dict[str, int]:
    """The sizes of open dimensions that a package runs at, by --dim."""
    dims = options.load_arguments(**model_options)["dims"]
    return {n: d for n, d in dims.items() if isinstance(d, int)}


def _check_sizes(package: Any, dims: dict[str, Any]) -> None:
    """BadInput unless every size is one extent of an open dimension of the package."""
    ranges = open_ranges(package.inputs.values())
    for name, extent in dims.items():
        if name not in ranges:
            raise BadInput(
                f"the package has no open dimension '{name}'; "
                + (f"it has {', '.join(ranges)}" if ranges else "its shapes are fixed")
            )
        if not isinstance(extent, int) or extent not in ranges[name]:
            raise BadInput(f"--dim {name}={extent}: the package runs {name}={ranges[name]}")


def load_package(path: str) -> Any:
    """The package in a file, opened with the keys that were given."""
    from intaglio.package import Package

    return Package.load(path, **key_options.given_keys())


def open_model(path: str, settings: dict[str, Any], model_options: dict[str, Any]) -> Any:
    """A Session for a package, or for a model that is compiled first."""
    import intaglio

    return intaglio.open(read_package(path, model_options), **settings)


def output_path(model: str, given: str | None) -> Path:
    """The path of the package to write: `given`, or the model's path with the suffix .itg."""
    if given and given.endswith(os.sep):
        raise BadInput(f"-o {given} is a folder; give the name of a file")
    source = Path(model) if Path(model).name else Path("model")  # "." has no name
    path = Path(given) if given else source.with_suffix(".itg")
    if path.suffix in (".onnx", ".tflite", ".pt", ".pt2", ".pth", ".pb", ".cfg", ".prototxt"):
        raise BadInput(
            f"cannot write '{path}': a package is no {path.suffix} file; give a name that ends in "
            ".itg; `intaglio optimize` and `intaglio quantize` write ONNX"
        )
    return path


def integer_model(
    path: str, load: dict[str, Any], by_layer: bool = False, as_vendor: bool = False
) -> Any:
    """A model for predictions; a float model is quantised for each chip from random samples."""
    import intaglio
    from intaglio.analysis.agreement import random_inputs
    from intaglio.analysis.whatif import Model
    from intaglio.npu.predict.leaky import with_one_slope
    from intaglio.quant import Options

    progress.report("reading the model")
    graph = intaglio.load(path, **load)
    graph = with_one_slope(graph) if as_vendor else graph
    if any(n.op.startswith(("quantize", "dequantize", "qlinear")) for n in graph.nodes()):
        return Model(graph, by_layer, as_vendor)
    samples = [random_inputs(graph, seed) for seed in (0, 1)]
    how = Options(method="minmax", accuracy=None, rounding="nearest", bias_correction=False)
    quiet: Any = lambda words: None  # noqa: E731  # a prediction of speed needs no accuracy

    @functools.cache
    def quantized(target: str) -> Any:
        with progress.inside(f"quantising for {target} from random samples"):
            return intaglio.quantize(graph, samples, target=target, options=how, warn=quiet)

    return Model(quantized, by_layer, as_vendor, floats=graph)
