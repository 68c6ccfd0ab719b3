"""Writes the folder of a project: templates filled in, kernels copied, C generated."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import intaglio
from intaglio.export.deploy import sources
from intaglio.export.deploy.board import Board, Memory
from intaglio.export.deploy.calls import C_TYPES, Printer, comment
from intaglio.export.deploy.packing import FORMS
from intaglio.export.deploy.sizes import Sizes
from intaglio.ir import Array
from intaglio.plan import Plan

FILES = Path(__file__).parent / "files"
KERNELS = Path(__file__).parent / "micro"
OPTIMISE = {"linux": "-O3", "bare": "-O2"}


@dataclass(frozen=True)
class Placement:
    """Where weights and arena lie: names of sections, and flash, RAM or a file for the weights."""

    weights: str = "flash"  # flash, ram or file
    weights_section: str = ".itg_weights"
    arena_section: str = ".itg_arena"


@dataclass(frozen=True)
class Contents:
    """All that a project is made of."""

    name: str
    model: str
    board: Board
    plan: Plan
    printer: Printer
    sizes: Sizes
    placement: Placement
    vectors: list[tuple[list[Array], list[Array]]]
    small: bool = False

    @property
    def from_file(self) -> bool:
        return self.placement.weights == "file"


def project_files(c: Contents) -> dict[str, bytes]:
    """The contents of every file by its path in the project."""
    name, placement, data = c.name, c.placement, bytes(c.printer.blob.bytes)
    model = sources.model_source(
        name, c.plan, c.printer, c.sizes.arena, placement.arena_section, c.from_file
    )
    header = sources.model_header(name, c.plan, c.sizes.arena, len(data), c.from_file)
    vectors_h, vectors_c = sources.vector_files(c.vectors)
    texts = {f"{name}.c": model, f"{name}.h": header}
    texts |= {"vectors.h": vectors_h, "vectors.c": vectors_c}
    found = {path: text.encode() for path, text in texts.items()}
    if c.from_file:
        found[f"{name}.weights"] = data
    else:
        writable = placement.weights == "ram"
        found[f"{name}_weights.c"] = sources.weights_source(
            name, data, placement.weights_section, writable
        ).encode()
    kernels = [f"itg_{k}.c" for k in sorted(c.printer.kernels)]
    others = {f"itg_{form}.h" for form in FORMS} - {f"itg_{c.board.form}.h"}
    for file in (*kernels, *sorted({p.name for p in KERNELS.glob("*.h")} - others)):
        found[f"itg/{file}"] = (KERNELS / file).read_bytes()
    return found | _templates(c, kernels)


def _templates(c: Contents, kernels: list[str]) -> dict[str, bytes]:
    board, words = c.board, _words(c, kernels)
    arm = "riscv" not in board.prefix
    chosen = {n: n for n in ("CMakeLists.txt", "Makefile", "README.md", "board.h", "main.c")}
    chosen["toolchain.cmake"] = "toolchain.cmake"
    chosen["board.c"] = "board_linux.c" if board.is_linux else "board_semihosting.c"
    if not board.is_linux:
        chosen |= {"start.c": "start_arm.c" if arm else "start_riscv.c"}
        chosen |= {"start.h": "start.h", "link.ld": "link.ld"}
    found = {}
    for path, template in chosen.items():
        text = (FILES / template).read_text()
        filled = re.sub(r"@([A-Z_]+)@", lambda m: words[m[1]], text)
        found[path] = filled.encode()
    return found


def _words(c: Contents, kernels: list[str]) -> dict[str, str]:
    """The values of the templates' @WORDS@."""
    board, name, m = c.board, c.name, c.board.memory
    ins, outs = len(c.plan.inputs), len(c.plan.outputs)
    weights = [] if c.from_file else [f"{name}_weights.c"]
    library = [f"{name}.c", *weights, *(f"itg/{k}" for k in kernels)]
    run = ["main.c", "board.c", "vectors.c", *([] if board.is_linux else ["start.c"])]
    forms = [] if board.form == "plain" else [f"ITG_FORM_{board.form.upper()}"]
    defines = [*forms, *(["ITG_SOFT_FLOAT"] if board.soft_float else [])]
    paths = [f"in{i}.bin" for i in range(ins)] + [f"out{i}.bin" for i in range(outs)]
    section = c.placement.weights_section
    in_flash = c.placement.weights == "flash"
    return {
        **_main_words(c),
        "NAME": name,
        "NAME_UPPER": name.upper(),
        "MODEL": comment(c.model),
        "VERSION": intaglio.__version__,
        "BOARD": board.name,
        "TITLE": board.title,
        "SYSTEM": "Linux" if board.is_linux else "Generic",
        "PREFIX": board.prefix,
        "COMPILER": board.compiler,
        "FLAGS": board.flags,
        "OPTIMISE": "-Os" if c.small else OPTIMISE[board.kind],
        "COMPILER_PACKAGES": board.compiler_packages,
        "QEMU": board.qemu,
        "QEMU_PACKAGES": board.qemu_packages,
        "RUN_COMMAND": _run_command(c),
        "LIBRARY_SOURCES": " ".join(library),
        "RUN_SOURCES": " ".join(run),
        "DEFINITIONS": " ".join(defines),
        "LINK": _link(board, name),
        "FILE_ARGUMENTS": " ".join(paths),
        "WEIGHTS_SECTION": section,
        "ARENA_SECTION": c.placement.arena_section,
        "WEIGHTS_FILE": f"{name}.weights" if c.from_file else f"{name}_weights.c",
        "WEIGHTS_BYTES": f"{c.sizes.weights:,}",
        "ARENA_BYTES": f"{c.sizes.arena:,}",
        "INPUT_BYTES": f"{c.sizes.inputs:,}",
        "OUTPUT_BYTES": f"{c.sizes.outputs:,}",
        "VECTORS": str(len(c.vectors)),
        "START_FILES": "" if board.is_linux else ", `start.c`, `link.ld`",
        "PLACEMENT": ""
        if board.is_linux
        else "`link.ld` places both sections; give them memories of their own there.",
        "FLASH_ORIGIN": hex(m.flash_origin) if m else "",
        "FLASH": str(m.flash) if m else "",
        "RAM_ORIGIN": hex(m.ram_origin) if m else "",
        "RAM": str(m.ram) if m else "",
        "STACK": str(m.stack) if m else "",
        "WEIGHTS_MEMORY": _weights_memory(m),
        "FLASH_WEIGHTS": f"  {section} : {{ . = ALIGN(16); KEEP(*({section})) }} > "
        + ("WEIGHTS" if m and m.weights else "FLASH")
        if in_flash
        else "",
        "RAM_WEIGHTS": "" if in_flash else f" . = ALIGN(16); *({section})",
    }


def _weights_memory(m: Memory | None) -> str:
    if m is None or not m.weights:
        return ""
    return f"  WEIGHTS (r) : ORIGIN = {hex(m.weights_origin)}, LENGTH = {m.weights}\n"


def _link(board: Board, name: str) -> str:
    if board.is_linux:
        return f'target_link_options({name}_run PRIVATE "SHELL:{board.libraries}")'
    script = "${CMAKE_CURRENT_SOURCE_DIR}/link.ld"
    libraries = board.libraries.split()
    flags = [f for f in libraries if not f.startswith("-l")]
    linked = [f for f in libraries if f.startswith("-l")]
    options = " ".join([*flags, f"-T {script}", "-Wl,--gc-sections", "-Wl,--no-warn-rwx-segments"])
    lines = [f'target_link_options({name}_run PRIVATE "SHELL:{options}")']
    lines += [f"target_link_libraries({name}_run {' '.join(linked)})"] if linked else []
    lines += [f"set_target_properties({name}_run PROPERTIES LINK_DEPENDS {script})"]
    return "\n".join(lines)


def _run_command(c: Contents) -> str:
    program = f"$(BUILD)/{c.name}_run"
    if c.board.is_linux:
        return " ".join(filter(None, (c.board.qemu, c.board.qemu_arguments, program, "$(RUN)")))
    each = f"$(foreach word,{program} $(RUN),$(comma)arg=$(word))"
    words = f"$(subst $(space),$(empty),{each})"
    return (
        f"{c.board.qemu} {c.board.qemu_arguments} "
        f"-semihosting-config enable=on,target=native{words} -kernel {program}"
    )


def _main_words(c: Contents) -> dict[str, str]:
    """The parts of main.c that depend on inputs and outputs."""
    name = c.name.upper()
    buffers, load, check, read, write, call = [], [], [], [], [], []
    for i, t in enumerate(c.plan.inputs):
        assert t is not None
        kind, size = C_TYPES[t.type.dtype], f"{name}_INPUT_{i}_BYTES"
        buffers.append(f"_Alignas(16) static {kind} in{i}[{size} / sizeof({kind})];")
        load.append(f"  memcpy(in{i}, vector_input_{i}[i], sizeof in{i});")
        read.append(f"  if (board_read(*path, in{i}, sizeof in{i})) goto bad;\n  path++;")
        call.append(f"in{i}")
    for i, t in enumerate(c.plan.outputs):
        kind, size = C_TYPES[t.type.dtype], f"{name}_OUTPUT_{i}_BYTES"
        buffers.append(f"_Alignas(16) static {kind} out{i}[{size} / sizeof({kind})];")
        check.append(f"  wrong |= memcmp(out{i}, vector_output_{i}[i], sizeof out{i}) != 0;")
        last = "" if i + 1 == len(c.plan.outputs) else "\n  path++;"
        write.append(f"  if (board_write(*path, out{i}, sizeof out{i})) goto bad;{last}")
        call.append(f"out{i}")
    include, load_weights = "", ""
    if c.from_file:
        include = f"\n_Alignas(16) static uint8_t weights[{name}_WEIGHTS_BYTES];\n"
        load_weights = (
            f'  if (board_read("{c.name}.weights", weights, sizeof weights)) {{\n'
            f'    board_print("{c.name}.weights is missing or has another size\\n");\n'
            f"    return 2;\n  }}\n  {c.name}_set_weights(weights);"
        )
    return {
        "BUFFERS": "\n".join(buffers),
        "LOAD_VECTOR": "\n".join(load),
        "CHECK_VECTOR": "\n".join(check),
        "READ_FILES": "\n".join(read),
        "WRITE_FILES": "\n".join(write),
        "CALL_ARGUMENTS": ", ".join(call),
        "WEIGHTS_INCLUDE": include,
        "LOAD_WEIGHTS": load_weights,
    }
