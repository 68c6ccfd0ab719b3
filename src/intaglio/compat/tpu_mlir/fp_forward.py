"""fp_forward: a table of float layers, named by where they are in the network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from intaglio import dtypes
from intaglio.compat.log import Log
from intaglio.compat.tpu_mlir import module_file
from intaglio.compat.tpu_mlir.calibration import float_layers
from intaglio.compat.tpu_mlir.calibration_options import CHIP, FP_TYPES
from intaglio.compat.tpu_mlir.chips import chip_of
from intaglio.compat.tpu_mlir.option_table import Command, option, words
from intaglio.compat.tpu_mlir.tables import write_qtable
from intaglio.errors import BadInput, did_you_mean
from intaglio.files import refuse_unwritable
from intaglio.ir import Graph, Node

FORWARD = Command(
    "fp_forward",
    "Writes layers before, after or between others into a table of float layers.",
    (
        option("mlir_file", "the file of model_transform"),
        option("--fpfwd_inputs", "these layers and all before them are float", words, default=[]),
        option("--fpfwd_outputs", "these layers and all after them are float", words, default=[]),
        option(
            "--fpfwd_blocks",
            "START:END: both layers and all between are float",
            nargs="+",
            default=[],
        ),
        CHIP,
        option("--fp_type", "type of the float layers", default="auto", choices=FP_TYPES),
        option("--quantize", "ignored: the table is for INT8", default="INT8"),
        option("-o --quantize_free_table", "the table to write", required=True),
    ),
)
Next = Callable[[Node], Iterable[Node]]


def main(arguments: Sequence[str], log: Log) -> int:
    """fp_forward."""
    given = FORWARD.parse(arguments, log)
    chip = chip_of(given.chip)
    module = module_file.read(given.mlir_file)
    refuse_unwritable(given.quantize_free_table)
    chosen = chosen_layers(
        module.graph, given.fpfwd_inputs, given.fpfwd_outputs, given.fpfwd_blocks
    )
    if not chosen:
        raise BadInput("no layer is chosen; give --fpfwd_outputs, --fpfwd_inputs or --fpfwd_blocks")
    mode = float_layers(given, chip).upper()
    table = dict.fromkeys(chosen, mode)
    write_qtable(given.quantize_free_table, table, chip.name, 0)
    log.info(f"{given.quantize_free_table}: {len(table)} layers in floats")
    return 0


def chosen_layers(
    graph: Graph, inputs: Sequence[str], outputs: Sequence[str], blocks: Sequence[str]
) -> list[str]:
    """Layers up to `inputs`, from `outputs` on, and between the ends of `blocks`: START:END."""
    layers = _layers(graph)
    chosen: set[Node] = set()
    for name in inputs:
        chosen |= _reached(_layer(name, layers), _before)
    for name in outputs:
        chosen |= _reached(_layer(name, layers), _after)
    for block in blocks:
        start, found, end = block.partition(":")
        if not found:
            raise BadInput(f"--fpfwd_blocks '{block}'; write the first and last layer as START:END")
        pair = _layer(start, layers), _layer(end, layers)
        between = _reached(pair[0], _after) & _reached(pair[1], _before)
        if not between:
            raise BadInput(f"--fpfwd_blocks '{block}': no path leads from one to the other")
        chosen |= between
    return [name for name, node in layers.items() if node in chosen]


def _layers(graph: Graph) -> dict[str, Node]:
    """The nodes that compute floats, by the name of their first result."""
    return {
        n.outputs[0].name: n
        for n in graph.nodes()
        if n.outputs[0].name and dtypes.is_float(n.outputs[0].dtype)
    }


def _layer(name: str, layers: dict[str, Node]) -> Node:
    if name not in layers:
        by_origin = [n for n in layers.values() if n.origin == name]  # the name of its operator
        if by_origin:
            return by_origin[-1]
        hint = did_you_mean(name, layers) or "; the .npz of --test_result names all layers"
        raise BadInput(f"no layer is called '{name}'{hint}")
    return layers[name]


def _before(node: Node) -> Iterable[Node]:
    return (v.producer for v in node.inputs if v is not None and v.producer is not None)


def _after(node: Node) -> Iterable[Node]:
    return (use for v in node.outputs for use in v.uses)


def _reached(first: Node, follow: Next) -> set[Node]:
    """A node and all that follow from it."""
    found, todo = {first}, [first]
    while todo:
        new = [n for n in follow(todo.pop()) if n not in found]
        found.update(new)
        todo += new
    return found
