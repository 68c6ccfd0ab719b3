"""Names of steps and their results as a reader of the model file knows them."""

from __future__ import annotations

import re

from intaglio.ops.registry import REGISTRY
from intaglio.plan import Step

ALL = "0123456789"
AXES = re.compile(r":(\d{2,10})$")  # that the layout pass appends
COUNTED = re.compile(r"_\d+$")  # of nodes that round the result of a node
PYTORCH = re.compile(r"_output_\d+$")  # of tensors, after the name of their node
BY_CHANNEL = "_by_channel"
SUFFIXES = ("_stored", "_exact", "_dequantized")  # of names that the quantiser gives


def node_name(origin: str, tensor: str, op: str) -> str:
    """The node's name in the model file; that of its tensor if the compiler made the node."""
    made = not origin or origin in REGISTRY or "quantize" in origin.lower()
    return tensor_name(tensor) or origin or op if made else origin


def tensor_name(name: str) -> str:
    """The name of the graph's tensor that the result of a step stands for."""
    while (found := AXES.search(name)) and sorted(found[1]) == list(ALL[: len(found[1])]):
        name = name[: found.start()]  # the order of its axes
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def step_name(step: Step) -> str:
    """The name of a step of a plan."""
    return node_name(step.origin, step.outputs[0].name if step.outputs else "", step.op)


def step_ends(origin: str, tensor: str) -> tuple[str, ...]:
    """Names of what a step computes, that are the same in a float and a quantised build: its last
    tensor, and its node without what the quantiser or the exporter appends."""
    named = tensor_name(tensor).removesuffix(BY_CHANNEL)
    node = COUNTED.sub("", origin)
    return tuple(dict.fromkeys(n for n in (named, PYTORCH.sub("", named), origin, node) if n))


def short(name: str) -> str:
    """A name for people: TensorFlow joins the names of all fused nodes by semicolons."""
    first, joined, _ = name.partition(";")
    return f"{first};…" if joined and first else name
