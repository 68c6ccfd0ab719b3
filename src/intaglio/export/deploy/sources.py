"""The generated C files of a project: the model, its weights and its test vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intaglio.export.deploy.calls import C_TYPES, Printer, comment
from intaglio.export.deploy.moves import copy
from intaglio.ir import Array
from intaglio.plan import Plan, Tensor

PER_LINE = 24


def array(values: Array | bytes) -> str:
    """Bytes as the inside of a C initialiser."""
    data = np.frombuffer(values if isinstance(values, bytes) else values.tobytes(), np.uint8)
    numbers = [str(v) for v in data.tolist()]
    lines = (",".join(numbers[i : i + PER_LINE]) for i in range(0, len(numbers), PER_LINE))
    return ",\n".join(lines)


def _c_type(t: Tensor) -> str:
    return C_TYPES[t.type.dtype]


def signature(name: str, plan: Plan) -> str:
    """`void model_run(const int8_t *in0, int8_t *out0)`"""
    ins = [f"const {_c_type(t)} *in{i}" for i, t in enumerate(plan.inputs) if t is not None]
    outs = [f"{_c_type(t)} *out{i}" for i, t in enumerate(plan.outputs)]
    return f"void {name}_run({', '.join([*ins, *outs])})"


def model_header(name: str, plan: Plan, arena: int, weights: int, from_file: bool) -> str:
    """`model.h`: sizes, tensors and the function."""
    upper = name.upper()
    lines = [
        f"// {comment(plan.name)}",
        f"#ifndef {upper}_H",
        f"#define {upper}_H",
        "",
        "#include <stdint.h>",
        "",
        f"#define {upper}_ARENA_BYTES {arena}",
        f"#define {upper}_WEIGHTS_BYTES {weights}",
        f"#define {upper}_INPUTS {len(plan.inputs)}",
        f"#define {upper}_OUTPUTS {len(plan.outputs)}",
    ]
    for word, tensors in (("INPUT", plan.inputs), ("OUTPUT", plan.outputs)):
        for i, t in enumerate(tensors):
            assert t is not None
            what = f"'{comment(t.name)}' {comment(str(t.type.but(quant=None)))}"
            if t.type.quant is not None:
                what += f", {comment(str(t.type.quant))}"
            lines.append(f"#define {upper}_{word}_{i}_BYTES {t.type.bytes}  // {what}")
    lines += ["", "// Runs the model once. Buffers lie at multiples of 4 bytes."]
    lines += [f"{signature(name, plan)};"]
    if from_file:
        lines += ["", f"// Weights of {name}.weights, at a multiple of 16 bytes; before any run."]
        lines += [f"void {name}_set_weights(const void *weights);"]
    return "\n".join([*lines, "", "#endif", ""])


def model_source(
    name: str, plan: Plan, printer: Printer, arena: int, section: str, from_file: bool
) -> str:
    """`model.c`: the layers and the calls of kernels."""
    for i, t in enumerate(plan.outputs):
        if (t.memory, t.slot, t.offset) != ("output", i, 0):
            copy(printer, t, Tensor(t.type, "output", 0, i))
    weights = (
        f"static const uint8_t *weights;\n"
        f"void {name}_set_weights(const void *at) {{ weights = at; }}\n"
        if from_file
        else f"extern const uint8_t {name}_weights[];\n#define weights {name}_weights\n"
    )
    arena_line = (
        f'__attribute__((section("{section}"), aligned(16))) static uint8_t arena[{max(arena, 1)}];'
    )
    unused = " ".join(f"(void)in{i};" for i in range(len(plan.inputs)))
    parts = [
        f'#include "{name}.h"\n\n#include "itg_micro.h"\n',
        weights,
        arena_line,
        "#define W(type, at) ((const type *)(const void *)(weights + (at)))",
        "#define A(type, at) ((type *)(void *)(arena + (at)))\n",
        "\n".join(printer.layers),
        f"\n{signature(name, plan)} {{",
        *[f"  {call}" for call in ("(void)arena;", "(void)weights;", unused, *printer.calls)],
        "}\n",
    ]
    return "\n".join(parts)


def weights_source(name: str, data: bytes, section: str, writable: bool) -> str:
    """`model_weights.c`: all constants as one array in its section."""
    body = array(data or b"\0")
    kind = "" if writable else "const "
    return (
        f"#include <stdint.h>\n\nextern {kind}uint8_t {name}_weights[];\n"
        f'__attribute__((section("{section}"), aligned(16))) {kind}uint8_t {name}_weights[] = {{\n'
        f"{body}}};\n"
    )


def vector_files(vectors: Sequence[tuple[Sequence[Array], Sequence[Array]]]) -> tuple[str, str]:
    """`vectors.h` and `vectors.c`: inputs and expected outputs as bytes."""
    head = ["#ifndef VECTORS_H", "#define VECTORS_H", "", "#include <stdint.h>", ""]
    head += [f"#define VECTORS {len(vectors)}"]
    body = ['#include "vectors.h"\n']
    for word, at in (("input", 0), ("output", 1)):
        for i in range(len(vectors[0][at])):
            size = vectors[0][at][i].nbytes
            name = f"vector_{word}_{i}[VECTORS][{size}]"
            head.append(f"extern const uint8_t {name};")
            rows = ",\n".join(f"{{{array(v[at][i])}}}" for v in vectors)
            body.append(f"__attribute__((aligned(4))) const uint8_t {name} = {{\n{rows}}};\n")
    return "\n".join([*head, "", "#endif", ""]), "\n".join(body)
