"""--quant_input and --quant_output of files in F16 and BF16: ports of 16 bits."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from intaglio import ops
from intaglio.compat.tpu_mlir.samples import inputs_of
from intaglio.errors import BadInput
from intaglio.ir import Graph, Value


def half_ports(graph: Graph, dtype: str, given: argparse.Namespace) -> None:
    """Give the chosen inputs and outputs of f32 the type of the layers."""
    inputs = inputs_of(graph)
    for k in chosen(given.quant_input, given.quant_input_list, "--quant_input_list", len(inputs)):
        old = inputs[k]
        if old.dtype != "f32":
            continue
        new = Value(old.type.but(dtype=dtype), old.name)
        wide: Value = ops.cast(new, dtype="f32")
        graph.replace(old, wide)
        wide.name, new.name = f"{old.name}_f32", old.name
        graph.inputs[graph.inputs.index(old)] = new
    outputs = list(graph.outputs)
    for k in chosen(
        given.quant_output, given.quant_output_list, "--quant_output_list", len(outputs)
    ):
        if outputs[k].dtype == "f32":
            graph.set_input(graph.result, k, ops.cast(outputs[k], dtype=dtype))


def chosen(every: bool, listed: Sequence[int] | None, option: str, count: int) -> list[int]:
    """The positions of a list that counts from 1; all without one if the option is set."""
    if listed is None:
        return list(range(count)) if every else []
    if any(not 1 <= k <= count for k in listed):
        raise BadInput(f"{option} is {','.join(map(str, listed))}; give numbers from 1 to {count}")
    return [k - 1 for k in listed]
