"""Generates docs/compat-c.md: every function and query of RKNN's C API, its state and its tests.

python -m intaglio.compat.c_conformance docs/compat-c.md

Functions and queries are read from the headers in csrc/compat, tests are the programs in
tests/compat/c that name them. What differs from a board is written here.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

from intaglio.files import write_atomically

HEADERS, TESTS = Path("csrc") / "compat", Path("tests") / "compat" / "c"
FUNCTION = re.compile(r"^(?:int|void|rknn_tensor_mem) \*?(rknn_\w+)\(", re.MULTILINE)
QUERY = re.compile(r"^  (RKNN_QUERY_\w+) = \d+,", re.MULTILINE)
NAMES = ("rknn_api.h", "rknn_matmul_api.h", "rknn_custom_op.h")
REFUSED = "Refused"  # begins the words of what a PC cannot do

HEAD = (  # paragraphs, then list items
    "Programs that include `rknn_api.h`, `rknn_matmul_api.h` or `rknn_custom_op.h` compile with "
    "gcc and g++ and run on a PC. The headers are our own, written from the documented behaviour "
    "of version 2.3.2: names, values and struct layouts are the same. `cmake --install` puts them "
    "into `include/intaglio-compat` and `librknnrt.so` into `lib`:",
    "- `gcc demo.c $(pkg-config --cflags --libs intaglio-compat)`, or "
    "`-I PREFIX/include/intaglio-compat -lrknnrt -lintaglio`.",
    "- Models are files that `RKNN.export_rknn` of `intaglio.compat` wrote, or any package of "
    "Intaglio. A file of Rockchip's compiler is refused (`RKNN_ERR_MODEL_INVALID`).",
    "- An error is the documented code, and one line on standard error: "
    "`E RKNN: function: what is wrong; remedy`. NULL pointers, unknown contexts and destroyed "
    "memory are errors, not crashes.",
    "- `RKNN_LOG_LEVEL=4` prints the times of all layers after each run. Encrypted models take "
    "their key from `INTAGLIO_KEY_FILE` or `INTAGLIO_KEY`, else from `MODEL.rknn.key` beside them.",
    "- Float32 outputs are byte for byte those of `RKNN.inference`. A quantised model reports INT8 "
    "inputs and outputs with their `zp` and `scale`; rows are dense, so `w_stride` is the width.",
)

FUNCTIONS = {
    "rknn_init": "Priorities, SRAM and GPU flags have no effect. "
    "RKNN_FLAG_FENCE_* is refused (`RKNN_ERR_DEVICE_UNAVAILABLE`): a PC has no fences.",
    "rknn_dup_context": "Models with several shapes can be duplicated too. Register custom "
    "operators for each context.",
    "rknn_set_core_mask": "Results do not depend on it. A model whose layers all run on the CPU "
    "ignores it.",
    "rknn_set_batch_core_num": "The same as a mask of that many cores.",
    "rknn_run": "With RKNN_FLAG_ASYNC_MASK or `non_block`, a thread of the context runs it.",
    "rknn_set_io_mem": "Memory in the runtime's own type and layout is used in place, other memory "
    "is converted in each run. INT8 input memory of a quantised model holds normalised, quantised "
    "values, as on a board.",
    "rknn_set_weight_mem": "Weights in a file of their own (`remove_weight`) stay mapped from "
    "there.",
    "rknn_set_input_shapes": "Memory that was set before is forgotten: set it again.",
    "rknn_mem_sync": "Checks its arguments; a PC's memory is coherent.",
    "rknn_create_mem2": "Cache and SRAM flags have no effect.",
    "rknn_create_mem_from_phys": "The virtual address is used. Without it NULL is returned: a "
    "program cannot reach physical addresses.",
    "rknn_create_mem_from_mb_blk": f"{REFUSED} (NULL): the memory belongs to Rockchip's media "
    "library.",
    "rknn_register_custom_ops": "Operators run on the CPU; RKNN_TARGET_TYPE_GPU is refused "
    "(`RKNN_ERR_DEVICE_UNAVAILABLE`). `init` is called for every node at every set of shapes. At "
    "most 16 types of operators in a process.",
    "rknn_matmul_create": "Every documented type is computed for every chip. Native layouts and "
    "alignments are those of RK3588, or of INTAGLIO_RKNN_PLATFORM (rk3562, rk3566, rk3568, "
    "rk3576). Quantisation per group needs C of floats. `iommu_domain_id` has no effect.",
    "rknn_matmul_set_io_mem": "B is read at once, A in each run.",
    "rknn_matmul_set_core_mask": "Checks its arguments; the CPU computes the product.",
    "rknn_matmul_get_quant_params": "`scale` gets the first scale.",
}
QUERIES = {
    "RKNN_QUERY_PERF_DETAIL": "Times of the PC; `intaglio perf` predicts those of the "
    "chip. Without RKNN_FLAG_COLLECT_PERF_MASK the text says that it is needed.",
    "RKNN_QUERY_PERF_RUN": "Microseconds on the PC.",
    "RKNN_QUERY_SDK_VERSION": "The driver is the simulator of the model's chip.",
    "RKNN_QUERY_MEM_SIZE": "Memory of this runtime; SRAM is 0.",
    "RKNN_QUERY_NATIVE_INPUT_ATTR": "NC1HWC2 only for models of export_rknn whose input has "
    "other than 1, 3 or 4 channels.",
    "RKNN_QUERY_NATIVE_OUTPUT_ATTR": "NC1HWC2 only for models of export_rknn.",
    "RKNN_QUERY_DEVICE_MEM_INFO": f"{REFUSED} (`RKNN_ERR_DEVICE_UNAVAILABLE`): it asks a driver.",
    "RKNN_QUERY_INPUT_DYNAMIC_RANGE": "A model with fixed shapes has one.",
}
NNCASE = {  # of nncase/runtime/interpreter.h and runtime_tensor.h
    "load_model": "From a stream or a span. A kmodel of nncase is refused.",
    "inputs_size": "",
    "outputs_size": "",
    "input_desc": "`start` is 0: tensors have memory of their own.",
    "output_desc": "",
    "input_shape": "",
    "output_shape": "",
    "input_tensor": "Read and set; a tensor may have any shape that the model was compiled for.",
    "output_tensor": "Read and set.",
    "run": "",
    "set_profiling": "No effect.",
    "host_runtime_tensor::create": "Memory pools are the same.",
    "host_runtime_tensor::map": "",
    "host_runtime_tensor::sync": "No effect: a PC's memory is coherent.",
    "host_runtime_tensor::buffer": "As in nncase 1.x.",
    "ai2d_builder": "Of nncase/functional/ai2d/ai2d_builder.h: crop, shift, resize or affine, and "
    "pad of NCHW, packed and YUV420 pictures. Pixels may differ from the unit's fixed point by "
    "one; YUV is BT.601 of full range.",
    "ai2d_builder::build_schedule": "Checks the parameters; an error says which one is wrong.",
    "ai2d_builder::invoke": "",
}


def functions(headers: Path = HEADERS) -> dict[str, list[str]]:
    """The functions of each header."""
    return {n: FUNCTION.findall((headers / n).read_text()) for n in NAMES}


def queries(headers: Path = HEADERS) -> list[str]:
    return QUERY.findall((headers / NAMES[0]).read_text())


def programs(name: str, tests: Path = TESTS) -> list[str]:
    """The test programs that name something."""
    last = re.escape(name.rpartition("::")[2])
    files = sorted(p for p in tests.iterdir() if p.suffix in (".c", ".cc"))
    return [p.name for p in files if re.search(rf"\b{last}\b", p.read_text())]


def _state(differs: str, tested: list[str]) -> str:
    if not tested:
        return "untested"
    return "refused" if differs.startswith(REFUSED) else "complete"


def _table(names: list[str], differs: Mapping[str, str], tests: Path) -> list[str]:
    lines = ["| name | state | programs |", "|---|---|---|"]
    for name in names:
        tested = programs(name, tests)
        lines.append(f"| `{name}` | {_state(differs.get(name, ''), tested)} | {_some(tested)} |")
    lines.append("")
    for name in names:
        if text := differs.get(name):
            lines += _wrapped(f"- `{name}`: {text}", "  ")
    return lines


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, 150, subsequent_indent=indent, break_on_hyphens=False)


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def page(headers: Path = HEADERS, tests: Path = TESTS) -> str:
    """The text of docs/compat-c.md."""
    command = "python -m intaglio.compat.c_conformance docs/compat-c.md"
    lines = [
        f"<!-- Made by `{command}`; change that file, the headers and tests, not this one. -->",
        "# C and C++ programs: what is supported",
        "",
        *_wrapped(HEAD[0], ""),
        "",
        *(line for item in HEAD[1:] for line in _wrapped(item, "  ")),
        "",
        "Programs are files of `tests/compat/c` that call it. Lists below the tables say what "
        "differs from a board.",
    ]
    for header, names in functions(headers).items():
        lines += ["", f"## {header}", "", *_table(names, FUNCTIONS, tests)]
    lines += ["", "## Commands of rknn_query", "", *_table(queries(headers), QUERIES, tests)]
    lines += [
        "",
        "## nncase/runtime/interpreter.h",
        "",
        "`nncase::runtime::interpreter` and `host_runtime_tensor` for C++17, header only: link "
        "with `-lintaglio`. Results have `expect`, `unwrap`,",
        "`unwrap_or_throw`, `is_ok` and `is_err`. Models are packages of Intaglio, whatever their "
        "name. Functions (`entry_function`) and modules are missing:",
        "they drive the chip.",
        "",
        *_table(list(NNCASE), NNCASE, tests),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m intaglio.compat.c_conformance FILE.md", file=sys.stderr)
        return 2
    write_atomically(arguments[0], page().encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
