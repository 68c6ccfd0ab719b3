"""ufw.cali.cali_model: from a model and a folder of pictures to an int8 bmodel, in one step."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from intaglio.compat.log import Log
from intaglio.compat.nntc.bmnet import MODEL, dashed, load, write_bmodel
from intaglio.compat.tpu_mlir import evaluate
from intaglio.compat.tpu_mlir.chips import chip_of
from intaglio.compat.tpu_mlir.compare import Tolerance, Verdict, compare
from intaglio.compat.tpu_mlir.fp_forward import chosen_layers
from intaglio.compat.tpu_mlir.module_file import Module, Pictures
from intaglio.compat.tpu_mlir.option_table import Command, option, shapes, truth, words
from intaglio.compat.tpu_mlir.quantise import Request, by_table, quantise, table_of
from intaglio.compat.tpu_mlir.samples import dataset, inputs_of
from intaglio.errors import BadInput, did_you_mean
from intaglio.files import write_atomically

USUAL_ITERATIONS = 200
PRECISION = "precision.txt"
KEYS = ("resize_h", "resize_w", "mean_value", "scale", "bgr2rgb", "grey", "resize_side")
METHODS = {"KLD": "kl", "KL": "kl", "MSE": "mse", "ADMM": "mse", "MAX": "minmax"}

CALI_MODEL = Command(
    "ufw.cali.cali_model",
    "Quantises a model with the pictures of a folder and writes NAME_batchN/compilation.bmodel.",
    (
        *MODEL,
        option("--input_shapes", "shapes of the inputs: [1,3,224,224]", shapes, default=[]),
        option("--input_descs", "ignored: types of inputs are those of the model", default=""),
        option("--cali_image_path", "a folder of pictures", default=""),
        option("--cali_lmdb", "refused: give the pictures by --cali_image_path", default=""),
        option(
            "--cali_image_preprocess",
            "resize_h=,resize_w=;mean_value=a:b:c;scale=s;bgr2rgb=True",
            default="",
        ),
        option("--cali_iterations", "most pictures for calibration; 0: 200", int, default=0),
        option("--test_iterations", "ignored: one picture is compared, layer by layer", int),
        option("--outdir", "the folder to write", default="auto_cali_out"),
        option("--convert_bmodel_cmd_opt", "ignored: it tunes the vendor's compiler", default=""),
        option(
            "--try_cali_accuracy_opt",
            "th_method, and fpfwd_ options for f32 layers; by default all range methods are tried",
            default="",
        ),
        option("--postprocess_and_calc_score_class", "ignored: layers are compared", default=""),
        option("--debug_cmd", "ignored: it is for the vendor's developers", default=""),
        option("--fp32_layer_list", "layers that stay in f32", default=""),
    ),
)


def main(arguments: Sequence[str], log: Log) -> int:
    """Quantise, compile and compare."""
    given = CALI_MODEL.parse(dashed(arguments), log)
    chip = chip_of(given.target)
    module = load(given, given.input_shapes, "cali_model")
    module = replace(module, pictures=pictures_of(given.cali_image_preprocess))
    if not given.cali_image_path:
        raise BadInput("--cali_image_path is missing; give a folder of pictures")
    samples = dataset(
        module, given.cali_image_path, None, given.cali_iterations or USUAL_ITERATIONS
    )
    method, first, last, between = _accuracy_options(given.try_cali_accuracy_opt)
    kept = chosen_layers(module.graph, first, last, between)
    names = words(given.fp32_layer_list)
    kept += chosen_layers(module.graph, [], [], [f"{name}:{name}" for name in names])
    layers = dict.fromkeys(kept, "f32")
    log.info(f"calibrating {module.name} with {len(samples)} pictures, method {method}")
    found = quantise(module, samples, len(samples), Request(chip, method, layers=layers), log)
    table = table_of(module, found, samples, method)
    inputs = [v.name for v in inputs_of(module.graph)]
    result = by_table(module, table, Request(chip, method, layers=layers), None, inputs, log)
    batch = inputs_of(module.graph)[0].shape[0]
    folder = Path(given.outdir, f"{module.name}_batch{batch}")
    write_bmodel(module, result.graph, chip, str(folder), log)
    umodel = folder / f"{module.name}.int8umodel"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Module(module.name, result.graph, module.source, module.pictures).save(umodel)
    sample = next(iter(samples))
    golden = evaluate.run_all(module.graph, sample)
    made = evaluate.run_all(result.graph, sample, level=0)
    rest = {n: a for n, a in golden.items() if n not in sample}
    verdicts = compare(made, rest, Tolerance(0.0, -1.0))
    _write_precision(folder / PRECISION, verdicts)
    worst = min(verdicts, key=lambda v: v.cosine, default=None)
    if worst is not None:
        log.info(
            f"least cosine of a layer: {worst.cosine:.6f} ({worst.name}); see {folder / PRECISION}"
        )
    return 0


def _write_precision(path: Path, verdicts: Sequence[Verdict]) -> None:
    lines = [f"{'layer':<48} {'cosine':>10} {'euclidean':>10}"]
    lines += [f"{v.name:<48} {v.cosine:>10.6f} {v.euclidean:>10.6f}" for v in verdicts]
    write_atomically(path, ("\n".join(lines) + "\n").encode())


def pictures_of(text: str) -> Pictures:
    """The settings of --cali_image_preprocess; BadInput names a key that is not known."""
    found: dict[str, str] = {}
    for part in re.split(r"[;,\s]+", text):
        if not part:
            continue
        key, equal, value = part.partition("=")
        if key not in KEYS or not equal:
            hint = did_you_mean(key, KEYS) or f"; it is one of {', '.join(KEYS)}"
            raise BadInput(f"--cali_image_preprocess has '{part}'{hint}")
        found[key] = value
    try:
        mean = [float(w) for w in found.get("mean_value", "0:0:0").split(":")]
        scale = [float(w) for w in found.get("scale", "1").split(":")]
        size = [int(found[k]) for k in ("resize_h", "resize_w") if k in found]
        rgb, grey = (truth(found.get(k, "false")) for k in ("bgr2rgb", "grey"))
    except (ValueError, TypeError) as e:
        raise BadInput(f"--cali_image_preprocess is '{text}': {e}; give numbers") from None
    if "resize_side" in found or len(size) == 1:
        raise BadInput("--cali_image_preprocess: give resize_h and resize_w")
    return Pictures(
        resize_dims=size or None,
        mean=mean * 3 if len(mean) == 1 else mean,
        scale=scale * 3 if len(scale) == 1 else scale,
        pixel_format="gray" if grey else "rgb" if rgb else "bgr",
    )


def _accuracy_options(text: str) -> tuple[str, list[str], list[str], list[str]]:
    """The range method of --try_cali_accuracy_opt, and its fpfwd_inputs, _outputs and _blocks."""
    method = "auto"
    found: dict[str, list[str]] = {f"fpfwd_{k}": [] for k in ("inputs", "outputs", "blocks")}
    for part in re.split(r"[;\s]+", text):
        key, _, value = part.lstrip("-").partition("=")
        if key == "th_method":
            if value.upper() not in METHODS:
                known = ", ".join(METHODS)
                raise BadInput(
                    f"--try_cali_accuracy_opt: th_method is {value}; it is one of {known}"
                )
            method = METHODS[value.upper()]
        elif key in found:
            found[key] += words(value)
    first, last, between = found.values()
    return method, first, last, between


def show_precision(arguments: Sequence[str], log: Log) -> int:
    """ufw.tools.app; refused."""
    raise BadInput(
        f"there is no web page; cali_model writes the cosine of every layer to {PRECISION} of its "
        "--outdir"
    )
