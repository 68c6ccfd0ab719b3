"""What the live page works on: a model's engines, its report, and trials of other precisions."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import intaglio
from intaglio import targets
from intaglio.analysis.agreement import usable_inputs
from intaglio.analysis.golden import is_quantized
from intaglio.analysis.joining import layer_of
from intaglio.analysis.report import ModelReport, report
from intaglio.errors import BadInput, did_you_mean, option
from intaglio.ir import Graph
from intaglio.ops.registry import REGISTRY
from intaglio.package import Package
from intaglio.quant import Options, Quantized, Scheme, calibrate
from intaglio.ui.engines import Engine, run_all

QUICK = Options(method="minmax", accuracy=None, rounding="nearest", bias_correction=False)
NEED_FLOAT = "precisions can be changed with a float model: give it as MODEL or as"


@dataclass(frozen=True)
class Trial:
    """A set of precisions, and what became of accuracy, time and size."""

    changes: dict[str, str]  # layer: precision
    cosine: float | None  # of the worst output
    milliseconds: float | None
    file: int  # bytes of the package
    seconds: float = field(default=0.0, compare=False)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Workbench:
    """A model, run in several ways, whose precisions can be changed layer by layer.

    `model` is a package or a model file, `golden` the float model if `model` is none. With `data`
    a float model is quantised; without it ranges come from random samples.
    """

    def __init__(
        self,
        model: str | Path,
        golden: str | Path | None = None,
        data: Any = None,
        *,
        target: str | None = None,
        samples: int | None = None,
        seed: int = 0,
        reading: Mapping[str, Any] | None = None,
        prediction: Mapping[str, Any] | None = None,
        package: Package | None = None,
        **load: Any,
    ):
        self.name = Path(model).name
        self.data, self.samples, self.seed = data, samples, seed
        self.reading, self.prediction = dict(reading or {}), dict(prediction or {})
        self.lock = threading.Lock()
        self.trials: list[Trial] = []
        self.made: Quantized | None = None
        self.engines: dict[str, Engine] = {}
        self.changes: dict[str, str] = {}
        self.float_graph: Graph | None = None
        loaded = intaglio.load(golden, **load) if golden is not None else None
        if package is not None:
            self.package: Package | None = package
            self.target = str(package.meta.get("target", "cpu"))
            if target not in (None, self.target):
                raise BadInput(f"the package is for {self.target}; leave out {option('target')}")
            self.float_graph, graph = loaded, None
        else:
            self.package, self.target = None, target or "cpu"
            graph = intaglio.load(model, **load)
            self.float_graph = loaded
            if not is_quantized(graph):
                self.float_graph, graph = (loaded or graph), None
        self.base: Quantized | None = None  # as quantised the first time
        if package is None and graph is None:
            self._quantize({})
        else:
            self._use(graph, package)
        self._record()

    # ---- engines ----
    def _use(self, graph: Graph | None, package: Package | None) -> None:
        """Open the engines of a package, or of a quantised graph, and make the report."""
        opened: dict[str, Engine] = {}
        old, self.engines = self.engines, opened
        for engine in old.values():
            engine.close()
        if self.float_graph is not None:
            compiled = intaglio.compile(self.float_graph.copy())
            opened["float"] = Engine("float", compiled, None, self.prediction)
        if graph is not None:
            compiled = intaglio.compile(graph.copy())
            opened["int8"] = Engine("int8", compiled, None, self.prediction)
            chip = intaglio.compile(graph.copy(), target=self.target)
            package = compiled if self.target == "cpu" else chip
        assert package is not None
        self.report: ModelReport = report(
            graph if graph is not None else package,
            self.float_graph,
            self.data,
            target=None if graph is None else self.target,
            samples=self.samples,
            seed=self.seed,
            reading=self.reading,
            name=self.name,
        )
        if self.target != "cpu":
            name, ms = f"{self.target} simulator", self.report.milliseconds
            opened[name] = Engine(name, package, ms, self.prediction)
        elif graph is None:
            opened["package"] = Engine("package", package, None, self.prediction)

    def run(self, data: bytes) -> dict[str, Any]:
        """Run a dropped picture or array through every engine."""
        with self.lock:
            return run_all(self.engines, data)

    # ---- precisions ----
    @property
    def scheme(self) -> Scheme:
        """The scheme of the quantised model; BadInput if the page did not quantise it."""
        if self.made is None:
            if self.float_graph is None:
                raise BadInput(f"{NEED_FLOAT} {option('golden', 'model.onnx')}")
            self._quantize({})
        assert self.made is not None
        return self.made.scheme

    @property
    def can_change(self) -> bool:
        """Whether there is a float model to quantise again."""
        return self.float_graph is not None

    def precisions(self) -> list[str]:
        """The precisions that the target has for layers."""
        return [p.name for p in targets.find(self.target).precisions]

    def change(self, layers: Mapping[str, str]) -> Trial:
        """Quantise with these precisions of layers (all others as chosen), compare and time."""
        import time

        with self.lock:
            known = self.scheme.layers
            for name, precision in layers.items():
                if name not in known:
                    raise BadInput(f"no layer is called '{name}'{did_you_mean(name, known)}")
                if precision not in self.precisions():
                    listed = ", ".join(self.precisions())
                    raise BadInput(f"{self.target} has no '{precision}'; it has {listed}")
            start = time.perf_counter()
            self._quantize(dict(layers))
            return self._record(time.perf_counter() - start)

    def _quantize(self, changes: dict[str, str]) -> None:
        """Quantise; after the first time every tensor keeps its range, but for the changes."""
        assert self.float_graph is not None
        if self.base is not None and not changes:
            self.made = self.base
        else:
            data, how = self.data, Options(target=self.target, **self.reading)
            if data is None:
                data = [usable_inputs(self.float_graph, self.seed + i)[0] for i in (0, 1)]
                how = replace(QUICK, target=self.target)
            if self.base is not None:
                scheme = _changed(self.base, whole_layers(self.base, changes))
                how = replace(how, scheme=scheme, accuracy=None, method="minmax")
            quiet: Any = lambda words: None  # noqa: E731  # the page shows what came of it
            self.made = calibrate(self.float_graph.copy(), data, options=how, warn=quiet)
        self.base = self.base or self.made
        self.changes = changes
        self._use(self.made.bare_graph, None)

    def _record(self, seconds: float = 0.0) -> Trial:
        found = self.report.comparison
        cosine = (
            None
            if found is None or found.worst_output != found.worst_output
            else found.worst_output
        )
        trial = Trial(
            dict(self.changes), cosine, self.report.milliseconds, self.report.file, seconds
        )
        self.trials.append(trial)
        return trial

    def scheme_file(self) -> str:
        """The scheme as YAML, for `intaglio quantize --scheme`."""
        with self.lock, tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "scheme.yaml"
            self.scheme.save(path)
            return path.read_text("utf-8")

    def close(self) -> None:
        for engine in self.engines.values():
            engine.close()


def whole_layers(base: Quantized, changes: Mapping[str, str]) -> dict[str, str]:
    """The changes, and the same for the activation of a product, or the product of an activation:
    they run as one step, which has one precision."""
    found = dict(changes)
    for n in base.float_graph.nodes():
        if REGISTRY[n.op].macs(n):
            names = [v.name for v in layer_of(n) if v.name in base.scheme.layers]
            wanted = [changes[name] for name in names if name in changes]
            for name in names if wanted else ():
                found.setdefault(name, wanted[0])
    return found


def _changed(base: Quantized, changes: Mapping[str, str]) -> Scheme:
    """The scheme with other precisions of some layers, whose tensors get new types and ranges."""
    free = set(changes)
    for n in base.float_graph.nodes():
        if n.outputs[0].name in changes:
            free |= {v.name for v in (*n.inputs, *n.outputs) if v is not None}
    kept = {k: t for k, t in base.scheme.tensors.items() if k not in free}
    return Scheme(kept, {**base.scheme.layers, **changes}, model=base.scheme.model)
