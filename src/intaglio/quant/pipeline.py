"""Quantisation from samples: the steps, in THE order, from a float model to integers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intaglio import targets
from intaglio.frontends.preprocess import split_options
from intaglio.ir import Graph
from intaglio.quant import steps
from intaglio.quant.huge_pages import small_pages
from intaglio.quant.options import Options, with_keywords
from intaglio.quant.placement.formats import formats
from intaglio.quant.placement.scheme import Scheme
from intaglio.quant.prepare import embedded_preprocessing
from intaglio.quant.ranges.observe import Progress
from intaglio.quant.result import Quantized
from intaglio.quant.state import Calibration
from intaglio.targets import Target


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
    # what changes the float graph, before anything is decided or observed
    Step("smooth norms", steps.smooth_norms, when=lambda o: o.smooth),
    Step("equalise convolutions", steps.equalize_convolutions, when=lambda o: o.equalize),
    Step("separate concat ranges", steps.separate_concats),
    Step("place integers", steps.place_integers),
    # two jobs in the background, while the samples run
    Step("store weights", steps.store_weights),
    Step("compile the trial model", steps.compile_trial),
    Step("observe ranges", steps.observe_ranges),
    Step("round weights by data", steps.round_weights_by_data, lambda o: o.rounding == "data"),
    Step("correct biases", steps.correct_biases, when=lambda o: o.correct),
    Step("search settings", steps.search_settings),
    Step("promote layers", steps.promote_layers),
    Step("insert quantize and dequantize nodes", steps.insert_qdq),
    Step("quantise recurrent layers", steps.quantize_recurrent_layers),
    Step("finish inputs", steps.finish_inputs),
)


def quantize(
    model: str | Path | Graph, data: Any = None, *, mode: str = "static", **how: Any
) -> Graph:
    """A graph that computes in integers what `model` computes in floats.

    `data` are samples like those that the model will see, from any source that
    `samples.dataset.samples` reads; the keywords are those of `calibrate`. Modes "dynamic" and
    "weights" need no samples (but 4-bit weights gain by them): the keywords are then those of
    `without_data`. The graph is for `intaglio.compile` and for `intaglio.save_onnx`.
    """
    if mode == "static":
        return calibrate(model, data, **how).graph
    from intaglio.quant.weight_only.datafree import without_data

    return without_data(model, mode, data=data, **how).graph


@small_pages()
def calibrate(
    model: str | Path | Graph,
    data: Any,
    *,
    target: str | Target = "cpu",
    options: Options | None = None,
    scheme: Scheme | str | Path | None = None,
    mean: Any = None,
    std: Any = None,
    layout: str = "auto",
    color: str = "rgb",
    resize: str = "stretch",
    pad_value: float = 114,
    input_type: str = "float",
    input_layout: Any = None,
    limit: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    warn: Callable[[str], None] = warnings.warn,
    **load: Any,
) -> Quantized:
    """`quantize`, with everything that was learnt on the way.

    Fields of `options` may be keywords of their own: `method="kl"`, `accuracy=0.99`. What `scheme`
    fixes for layers and tensors is not searched; `mean` to `seed` are for
    `samples.dataset.samples`; other keywords are for `intaglio.load`. With `input_type` "uint8" the
    graph takes pictures as bytes, and `mean` and `std` become a part of it; `input_layout` "nhwc",
    `swap_rb` and other options of `frontends.preprocess` then describe those bytes.
    """
    options, load = with_keywords(options, load)
    pictures, load = split_options(load)
    pictures |= {"input_type": input_type, "input_layout": input_layout, "layout": layout}
    chip = targets.find(target)
    how = formats(
        chip,
        options.activations,
        options.weights,
        options.per,
        options.symmetric,
        options.weight_zeros,
        options.floats,
    )
    reading = {
        "mean": mean,
        "std": std,
        "layout": layout,
        "color": color,
        "resize": resize,
        "pad_value": pad_value,
        "limit": limit,
        "seed": seed,
    }
    with Calibration(
        model,
        data,
        options,
        chip,
        how,
        Scheme.load(scheme) if isinstance(scheme, str | Path) else scheme,
        load,
        reading,
        embedded_preprocessing(pictures, mean, std),
        progress,
        warn,
    ) as calibration:
        for step in STEPS:
            if step.when(options):
                step.run(calibration)
        return calibration.result
