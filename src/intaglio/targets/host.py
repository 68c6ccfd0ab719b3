"""The cost model of the CPU next to an NPU: time by kind of work and bytes moved."""

from __future__ import annotations

from intaglio.ir import Node
from intaglio.ops.registry import REGISTRY
from intaglio.targets.chip import Host

STEP = 2_000.0  # nanoseconds to start an op
MIN_WORK_PER_CORE = 20_000.0  # nanoseconds; with less, another core does not pay
FREE = ("reshape", "bitcast")  # views
PARTS = ("gather", "gather_elements", "gather_nd", "slice")  # read only elements of their results
FUNCTIONS = (
    "exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf pow sigmoid softplus "
    "mish gelu swish elu selu celu softmax log_softmax qlinear_softmax reduce_log_sum_exp lrn "
    "attention rotary_embedding cpu.attention"
)
MOVES = (
    "transpose expand tile concat slice pad depth_to_space space_to_depth channel_shuffle gather "
    "gather_elements gather_nd scatter_elements scatter_nd tensor_scatter one_hot reverse_sequence "
    "lookup lookup_wide resize qlinear_resize interpolate grid_sample max_pool qlinear_avg_pool "
    "avg_pool topk argmax argmin nonzero compress unique col2im roi_align "
    "non_max_suppression"
)
_FAMILIES = {
    op: kind for kind, ops in (("functions", FUNCTIONS), ("moves", MOVES)) for op in ops.split()
}


def family(node: Node) -> str:
    """The kind of a node's work: products, functions, moves or arithmetic."""
    usual = "products" if REGISTRY[node.op].macs(node) else "arithmetic"
    return _FAMILIES.get(node.op, usual)


def nanoseconds(node: Node, host: Host) -> float:
    """Estimate for one node: the longer of work and memory traffic, on as many cores as pay."""
    if node.op in FREE:
        return 0.0
    values = [v for v in (*node.inputs, *node.outputs) if v is not None]
    if node.op in PARTS:
        values[0] = node.outputs[0]
    elements = max(v.type.size for v in values)
    work = REGISTRY[node.op].macs(node) / host.per_ns("products")
    if family(node) != "products":
        work += elements / host.per_ns(family(node))
    one_core = max(work, sum(v.type.bytes for v in values) / host.per_ns("bytes"))
    return STEP + one_core / min(host.cores, max(1.0, one_core / MIN_WORK_PER_CORE))
