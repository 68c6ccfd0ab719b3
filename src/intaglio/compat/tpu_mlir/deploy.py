"""model_deploy: from an .mlir file to a file of a chip, with comparisons."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import intaglio
from intaglio.array_files import read_npz, write_npz
from intaglio.compat.log import Log
from intaglio.compat.tpu_mlir import evaluate, fused_pixels, module_file, runner
from intaglio.compat.tpu_mlir.chip_file import (
    FLOATS,
    WEIGHTS,
    ChipFile,
    UnsupportedEnd,
    compile_file,
    holds_floats,
    refuse_type,
)
from intaglio.compat.tpu_mlir.chips import chip_of, ending_of, refuse_file
from intaglio.compat.tpu_mlir.compare import Tolerance, compare, report
from intaglio.compat.tpu_mlir.deploy_options import DEPLOY
from intaglio.compat.tpu_mlir.half_ports import chosen, half_ports
from intaglio.compat.tpu_mlir.module_file import Module
from intaglio.compat.tpu_mlir.option_table import words
from intaglio.compat.tpu_mlir.quantise import Request, by_table, round_outputs
from intaglio.compat.tpu_mlir.quantised_model import is_quantised
from intaglio.compat.tpu_mlir.samples import Sample, inputs_of, read_sample
from intaglio.compat.tpu_mlir.tables import CalibrationTable, read_qtable
from intaglio.compat.tpu_mlir.yolo_post import with_boxes
from intaglio.errors import BadInput, did_you_mean
from intaglio.files import refuse_unwritable, write_atomically
from intaglio.ir import Array, Graph
from intaglio.npu.chips.packaged import has_files
from intaglio.quant.weight_only.rounded import rounded_weights
from intaglio.targets.chip import Chip

TOLERANCES = {"INT8": "0.90,0.80", "F16": "0.99,0.90", "BF16": "0.99,0.90", "F32": "0.99,0.99"}
PACKAGE = ".itg"


def main(arguments: Sequence[str], log: Log) -> int:
    """Write the file; 1 if a comparison fails."""
    given = DEPLOY.parse(arguments, log)
    chip = chip_of(given.chip)
    package = given.model.endswith(PACKAGE)
    if not package:
        refuse_file(chip, given.chip, "give --model NAME.itg for a package that its simulator runs")
    if not package and not given.model.endswith(ending_of(chip)):
        raise BadInput(
            f"--model is '{given.model}'; a file for {given.chip} ends in {ending_of(chip)}, a "
            f"package in {PACKAGE}"
        )
    if not package:
        refuse_type(given.quantize, given.chip, chip)
    tolerance = Tolerance.of(given.tolerance or TOLERANCES.get(given.quantize, "0.90,0.80"))
    correctness = given.correctness or ("0.98,0.80" if given.quantize_table else "0.99,0.90")
    same = Tolerance.of(correctness, "--correctness")
    module = module_file.read(given.mlir)
    fused = fused_pixels.of(module, given) if given.fuse_preprocess else None
    test = _test(module, given)
    reference = dict(read_npz(given.test_reference)) if given.test_reference else None
    refuse_unwritable(given.model)
    if module.boxes and not package:
        raise BadInput(
            "the boxes of --add_postprocess are not computed by the TPU; give --model NAME.itg for "
            "a package with them, or leave out --add_postprocess"
        )
    graph, made = _compiled(module, given, chip, fused, test, log)
    if fused and made is not None:
        fused.check([p.shape for p in made.inputs])
    if made is not None and not given.not_gen_bmodel:
        write_atomically(given.model, made.data)
        _describe(made, given, log)
    elif package and not given.not_gen_bmodel:
        _save_package(graph, given, chip, log)
    if test is None or given.skip_validation:
        return 0
    feeds = fused.feeds(given.test_input, test) if fused else test
    prefix = _prefix(module, given)
    floats = given.quantize_table or (made is not None and made.floats)
    own = holds_floats(chip) and given.quantize not in FLOATS and not floats
    outputs = _outputs(graph, made, own, feeds)
    passed = _compare(graph, module, given, feeds, test, outputs, reference, tolerance, prefix, log)
    if made is not None and not given.not_gen_bmodel:
        passed &= _check_file(made, outputs, given, feeds, same, prefix, log)
    return 0 if passed else 1


def _compiled(
    module: Module,
    given: argparse.Namespace,
    chip: Chip,
    fused: fused_pixels.FusedPixels | None,
    test: Sample | None,
    log: Log,
) -> tuple[Graph, ChipFile | None]:
    """The network in the wanted numbers, and its file unless a package is wanted.

    Results of the last product are floats if the chip has them. If other ops follow, the network is
    quantised to its end. Ops without an integer form, such as Softmax, are computed in floats.
    """
    graph = _network(module, given, chip, fused, test, log)
    if given.model.endswith(PACKAGE):
        return with_boxes(graph, module.boxes) if module.boxes else graph, None
    dtype, cores = FLOATS.get(given.quantize, ""), _cores(given, chip, log)
    types = _types(module.graph, given) if dtype else {}
    try:
        return graph, compile_file(graph, module.graph, chip, dtype, cores, types)
    except UnsupportedEnd as e:
        first = e
    if given.calibration_table:
        longer = _network(module, given, chip, fused, test, log, to_the_end=True)
        try:
            return longer, compile_file(longer, module.graph, chip, dtype, cores)
        except UnsupportedEnd:
            pass
    if dtype or not holds_floats(chip):
        raise first
    return graph, compile_file(graph, module.graph, chip, "f32", cores)


def _types(graph: Graph, given: argparse.Namespace) -> dict[str, str]:
    """The types of single layers of a file in floats, by operator, from --quantize_table."""
    if not given.quantize_table:
        return {}
    named = {v.name: n.origin for n in graph.nodes() for v in n.outputs if v.name}
    named |= {n.origin: n.origin for n in graph.nodes() if n.origin}
    found = {}
    for name, dtype in read_qtable(given.quantize_table).items():
        if dtype == "int8":
            raise BadInput(
                f"--quantize_table: '{name}' is INT8, --quantize is {given.quantize}; give "
                "--quantize INT8, and the layers in floats in the table"
            )
        if name not in named:
            hint = did_you_mean(name, named) or "; the .npz of --test_result names all layers"
            raise BadInput(f"--quantize_table: no layer is called '{name}'{hint}")
        found[named[name]] = dtype
    return found


def _cores(given: argparse.Namespace, chip: Chip, log: Log) -> int:
    """How many cores share the work; a chip with one core ignores --num_core."""
    count: int = given.num_core
    if count < 1 or 1 < chip.cores < count:
        raise BadInput(f"--num_core is {count}; {chip.name} takes 1 to {chip.cores}")
    if count > chip.cores:
        log.warning(f"--num_core {count} is ignored: {chip.name} has one core")
        return 1
    return count


def _outputs(graph: Graph, made: ChipFile | None, own: bool, feeds: Sample) -> dict[str, Array]:
    """The outputs of the network in the arithmetic of the chip.

    That of BM1684X and its relatives on bytes is our `own`. Floats and other chips round otherwise.
    """
    if made is None or own:
        return evaluate.run(graph, feeds)
    found = made.run(feeds)
    return {p.tensor: found[p.name] for p in made.outputs}


def _test(module: Module, given: argparse.Namespace) -> Sample | None:
    """The float inputs of the comparisons."""
    if not given.test_input:
        if given.test_reference:
            raise BadInput("--test_reference is given without --test_input; give NAME_in_f32.npz")
        return None
    return read_sample(given.test_input, module)


def _network(
    module: Module,
    given: argparse.Namespace,
    chip: Chip,
    fused: fused_pixels.FusedPixels | None,
    test: Sample | None,
    log: Log,
    to_the_end: bool = False,
) -> Graph:
    """The network in the wanted numbers, with its preprocessing if that is fused."""
    layers = read_qtable(given.quantize_table) if given.quantize_table else {}
    if given.quantize in FLOATS:
        graph = _with_rounded_weights(module.graph, given)
        graph = fused.embedded(graph) if fused else graph.copy()
        if FLOATS[given.quantize] != "f32":
            half_ports(graph, FLOATS[given.quantize], given)
        return graph
    if given.quantize not in ("INT8", "QDQ"):
        raise BadInput(f"--quantize {given.quantize} is not supported; use INT8, F16, BF16 or F32")
    if is_quantised(module.graph) and not given.calibration_table:
        if fused or layers:
            raise BadInput(
                "the model is quantised already; leave out --fuse_preprocess and --quantize_table"
            )
        return module.graph.copy()
    if not given.calibration_table:
        raise BadInput(
            "--quantize INT8 needs --calibration_table; make one: run_calibration "
            f"{given.mlir} --dataset FOLDER -o TABLE"
        )
    table = CalibrationTable.read(given.calibration_table)
    ports = [v.name for v in inputs_of(module.graph)] + module.graph.output_names
    if given.asymmetric and chip.file == "cvimodel":
        log.warning("--asymmetric is ignored: a cvimodel has no place for zero points of its ports")
    symmetric = ports if not given.asymmetric or chip.file == "cvimodel" else []
    request = Request(chip, layers=layers, to_the_end=to_the_end)
    found = by_table(module, table, request, test, symmetric, log).graph
    every = given.quant_output or given.quant_output_int8
    names = module.graph.output_names
    which = chosen(every, given.quant_output_list, "--quant_output_list", len(names))
    round_outputs(found, table, which)
    return fused.embedded(found) if fused else found


def _with_rounded_weights(graph: Graph, given: argparse.Namespace) -> Graph:
    """The graph whose matrices are on the grid of W8F16 and its relatives; W4 is by groups."""
    if given.quantize not in WEIGHTS:
        return graph
    dtype, _ = WEIGHTS[given.quantize]
    if dtype == "i8":
        return rounded_weights(graph, dtype, convolutions=False)
    if given.q_symmetric:
        dtype = "i4"
    return rounded_weights(
        graph, dtype, given.q_group_size, symmetric=given.q_symmetric, convolutions=False
    )


def _prefix(module: Module, given: argparse.Namespace) -> str:
    """The beginning of the names of files that a comparison leaves."""
    kind = ("_asym" if given.asymmetric else "_sym") if given.quantize == "INT8" else ""
    return f"{module.name}_{given.chip}_{given.quantize.lower()}{kind}"


def _compare(
    graph: Graph,
    module: Module,
    given: argparse.Namespace,
    feeds: Sample,
    test: Sample,
    outputs: dict[str, Array],
    reference: dict[str, Array] | None,
    least: Tolerance,
    prefix: str,
    log: Log,
) -> bool:
    """The quantised network against the float one."""
    if reference is None:
        reference = evaluate.run_all(module.whole, test)
    names = set(module.whole.output_names)
    if missing := names - set(reference):
        raise BadInput(
            f"--test_reference has no tensor '{sorted(missing)[0]}'; give the --test_result of "
            "model_transform"
        )
    made = evaluate.run_all(graph, feeds, level=0) if given.compare_all else {}
    made |= outputs
    write_npz(f"{prefix}_tpu_outputs.npz", {**feeds, **made})
    wanted = reference if given.compare_all else {n: reference[n] for n in names}
    wanted = {n: a for n, a in wanted.items() if n not in feeds}
    if module.boxes and set(wanted) <= set(words(given.excepts)):  # the only output
        log.warning("model_deploy: nothing is compared: --excepts names every tensor")
        return True
    verdicts = compare(made, wanted, least, words(given.excepts))
    titles = f"{prefix}_tpu_outputs.npz", given.test_reference or given.mlir
    return report(verdicts, log, titles, brief=given.log_level == 1)


def _check_file(
    made: ChipFile,
    expected: dict[str, Array],
    given: argparse.Namespace,
    feeds: Sample,
    least: Tolerance,
    prefix: str,
    log: Log,
) -> bool:
    """The file in the simulator of its chip against the quantised network."""
    found = runner.run_file(Path(given.model), feeds, fixed=False)
    write_npz(f"{prefix}_model_outputs.npz", found)
    wanted = {p.name: expected[p.tensor] for p in made.outputs if p.tensor in expected}
    verdicts = compare(found, wanted, least, words(given.excepts))
    titles = f"{prefix}_model_outputs.npz", f"{prefix}_tpu_outputs.npz"
    return report(verdicts, log, titles, brief=given.log_level == 1)


def _describe(made: ChipFile, given: argparse.Namespace, log: Log) -> None:
    log.info(f"{given.model}: {len(made.data):,} bytes for {given.chip}")
    for title, ports in (("input", made.inputs), ("output", made.outputs)):
        for p in ports:
            dims = ", ".join(map(str, p.shape))
            scale = f", scale: {p.scale:.6g}, zero_point: {p.zero}" * (p.dtype != "f32")
            log.info(f"{title}: {p.name}, [{dims}], {p.dtype}{scale}")


def _save_package(graph: Graph, given: argparse.Namespace, chip: Chip, log: Log) -> None:
    """A package for the chip, whose other layers run on its CPU."""
    keywords: dict[str, Any] = {"target": chip.name}
    if given.quantize_table and given.quantize in FLOATS:
        raise BadInput("--quantize_table of a package is for --quantize INT8; leave it out")
    keywords["npu_code"] = "chip" if has_files(chip) and given.quantize not in FLOATS else "own"
    precision = FLOATS.get(given.quantize)
    if precision in chip.types and given.quantize != "F32":
        keywords["precision"] = precision
    package = intaglio.compile(graph, **keywords)
    package.save(given.model)
    log.info(f"{given.model}: a package of Intaglio for {chip.name}; `intaglio run` runs it")
