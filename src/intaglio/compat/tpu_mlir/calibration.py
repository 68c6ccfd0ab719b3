"""run_calibration and run_qtable: tables of ranges and of float layers, from samples."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from intaglio.compat.log import Log
from intaglio.compat.tpu_mlir import module_file
from intaglio.compat.tpu_mlir.calibration_options import CALIBRATION, METHODS, QTABLE
from intaglio.compat.tpu_mlir.chips import chip_of
from intaglio.compat.tpu_mlir.quantise import Request, quantise, table_of
from intaglio.compat.tpu_mlir.samples import dataset
from intaglio.compat.tpu_mlir.tables import CalibrationTable, write_qtable
from intaglio.errors import BadInput
from intaglio.files import refuse_unwritable
from intaglio.quant import Quantized
from intaglio.targets.chip import Chip

FLOATS = {"auto": "f16", "F16": "f16", "F32": "f32", "BF16": "bf16"}


def main(arguments: Sequence[str], log: Log) -> int:
    """run_calibration."""
    given = CALIBRATION.parse(arguments, log)
    chip = chip_of(given.chip)
    module = module_file.read(given.mlir_file)
    samples = dataset(module, given.dataset, given.data_list, given.input_num)
    refuse_unwritable(given.calibration_table)
    searched = given.search not in ("False", "search_threshold")
    if searched and not given.quantize_table:
        raise BadInput(f"--search {given.search} needs --quantize_table FILE for its result")
    method = "auto" if given.search == "search_threshold" else METHODS[given.cali_method]
    log.info(f"calibrating {module.name} with {len(samples)} samples, method {method}")
    found = quantise(module, samples, len(samples), Request(chip, method), log)
    table = table_of(module, found, samples, method)
    table.save(given.calibration_table, given.mlir_file, given.cali_method)
    log.info(f"{given.calibration_table}: ranges of {len(table.rows)} tensors")
    if searched:
        _cosine(given.expected_cos)
        request = Request(
            chip, method, accuracy=given.expected_cos, floats=float_layers(given, chip)
        )
        wider = quantise(module, samples, len(samples), request, log)
        _write(wider, given, chip, len(samples), log)
    return 0


def qtable(arguments: Sequence[str], log: Log) -> int:
    """run_qtable."""
    given = QTABLE.parse(arguments, log)
    chip = chip_of(given.chip)
    _cosine(given.expected_cos)
    module = module_file.read(given.mlir_file)
    samples = dataset(module, given.dataset, given.data_list, given.input_num)
    table = CalibrationTable.read(given.calibration_table)
    refuse_unwritable(given.quantize_table)
    request = Request(
        chip,
        table.method or Request.method,
        accuracy=given.expected_cos,
        floats=float_layers(given, chip),
    )
    found = quantise(module, samples, len(samples), request, log)
    _write(found, given, chip, len(samples), log)
    if given.loss_table:
        lines = [f"No.{i:<4}: layers in floats: {p}" for i, p in enumerate(found.curve)]
        with open(given.loss_table, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    return 0


def _cosine(given: float) -> None:
    if not 0 < given < 1:
        raise BadInput(f"--expected_cos is {given}; give a cosine between 0 and 1, such as 0.99")


def float_layers(given: argparse.Namespace, chip: Chip) -> str:
    """The type of float layers: the wanted one, or f32 if the chip has no f16."""
    wanted = FLOATS[str(given.fp_type)]
    return wanted if wanted in chip.types else "f32"


def _write(found: Quantized, given: argparse.Namespace, chip: Chip, samples: int, log: Log) -> None:
    """Write the layers that the search took out of int8."""
    path, most = given.quantize_table, given.max_float_layers
    wider = {n: p.upper() for n, p in found.scheme.layers.items() if p not in ("int8", "int16")}
    wider |= {n: "F32" for n in found.floats if n not in wider}
    if len(wider) > most:
        log.warning(
            f"the search makes {len(wider)} layers float, --max_float_layers is {most}; "
            f"the first {most} are written"
        )
    kept = dict(list(wider.items())[:most])
    write_qtable(path, kept, chip.name, samples)
    log.info(f"{path}: {len(kept)} layers in floats")
