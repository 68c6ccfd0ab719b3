"""Quantisation from samples: the steps, in THE order, from a float model to integers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intaglio.errors import BadInput, option
from intaglio.ir import Graph
from intaglio.progress import Progress, inside, report, to, triples
from intaglio.quant import steps
from intaglio.quant.huge_pages import without_huge_pages
from intaglio.quant.options import Options, split_keywords
from intaglio.quant.placement.formats import formats
from intaglio.quant.result import Quantized
from intaglio.quant.state import Calibration


@dataclass(frozen=True)
class Step:
    """A step of the pipeline: a function that reads and fills the calibration's state."""

    name: str
    run: Callable[[Calibration], None]
    when: Callable[[Options], bool] = lambda options: True


STEPS = (
    Step("load and optimise the model", steps.load_model),
    Step("read requests", steps.read_requests),
    Step("read samples", steps.read_samples),
    # changes of the float graph, before any decision or observation depends on it
    Step("smooth norms", steps.smooth_norms, when=lambda o: o.smooth),
    Step("equalise convolutions", steps.equalize_convolutions, when=lambda o: o.equalize),
    Step("separate concat ranges", steps.separate_concats),
    Step("place integers", steps.place_integers),
    # two jobs in the background, while the samples run
    Step("store weights", steps.store_weights),
    Step("compile the trial model", steps.compile_trial),
    Step("observe ranges", steps.observe_ranges),
    Step("round weights by data", steps.round_weights_by_data, lambda o: o.rounding == "data"),
    Step("correct biases", steps.correct_biases, when=lambda o: o.bias_correction),
    Step("search settings", steps.search_settings),
    Step("promote layers", steps.promote_layers),
    Step("insert quantize and dequantize nodes", steps.insert_qdq),
    Step("quantise recurrent layers", steps.quantize_recurrent_layers),
    Step("finish inputs", steps.finish_inputs),
)


def quantize(model: str | Path | Graph, data: Any = None, **keywords: Any) -> Graph:
    """The model as a graph that computes in integers.

    `data` are samples like those that the model will see, from any source that
    `samples.dataset.samples` reads; modes "dynamic" and "weights" need none. The keywords are
    those of `calibrate`: the fields of `Options`, and those of `intaglio.load`. The graph is for
    `intaglio.compile` and for `intaglio.save_onnx`.
    """
    return calibrate(model, data, **keywords).graph


@without_huge_pages()
def calibrate(
    model: str | Path | Graph,
    data: Any = None,
    *,
    options: Options | None = None,
    progress: Progress | None = None,
    warn: Callable[[str], None] = warnings.warn,
    **keywords: Any,
) -> Quantized:
    """Quantise, and return the graph with its scheme, observations and notes.

    Fields of `options` may be keywords of their own: `method="kl"`, `accuracy=0.99`. Other
    keywords are for `intaglio.load`. `progress(words, done, total)` is told what is being done.
    """
    options, load = split_keywords(options, keywords)
    with to(triples(progress)):
        return _calibrated(model, data, options, warn, load)


def _calibrated(
    model: str | Path | Graph,
    data: Any,
    options: Options,
    warn: Callable[[str], None],
    load: dict[str, Any],
) -> Quantized:
    if options.mode != "static":
        from intaglio.quant.weight_only.datafree import without_data

        with inside(f"quantising, mode {options.mode}"):
            return without_data(model, data=data, options=options, warn=warn, **load)
    options = options.with_fast()
    _refuse_no_data(data)
    chip = options.load_target()
    how = formats(
        chip,
        options.activations,
        options.weights,
        options.per,
        options.symmetric,
        options.weight_zeros,
        options.floats,
    )
    scheme = options.load_scheme()
    with Calibration(model, data, options, chip, how, scheme, load, report, warn) as calibration:
        for step in STEPS:
            if step.when(options):
                with inside(step.name):
                    step.run(calibration)
        return calibration.result


def _refuse_no_data(data: Any) -> None:
    sources = "give a folder of pictures, a list, .npy or .npz"
    if data is None:
        raise BadInput(
            f"{option('data')} is missing: quantising needs samples like those that the model "
            f"will see; {sources}"
        )
    if isinstance(data, str) and not data:
        raise BadInput(f"{option('data')} is empty; {sources}")
