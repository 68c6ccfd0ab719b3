"""`intaglio deploy`: projects build without warnings, and compute the bytes of Python."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tests.export.deploy_nets import Net, build, epilogues, every_kernel, floats

import intaglio
from intaglio import ops
from intaglio.cli import cli
from intaglio.errors import BadFile, BadInput, Unsupported
from intaglio.export.deploy import board as boards
from intaglio.export.deploy.moves import nearest_runs
from intaglio.export.deploy.packing import FORMS
from intaglio.export.deploy.scratch import place_scratch
from intaglio.ir import Graph, Type, Value, constant
from intaglio.plan import Plan, Step, Tensor
from intaglio.targets.micro.floats import exponential

KINDS = [("i8", "i8"), ("u8", "u8")]
needs_gcc = pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc: apt install gcc")


def run(program: Path, *arguments: str) -> str:
    done = subprocess.run(
        [str(program), *arguments], cwd=program.parent, capture_output=True, text=True, timeout=60
    )
    return f"{done.stdout}{done.returncode}"


@needs_gcc
@pytest.mark.parametrize(("dtype", "weights"), KINDS)
def test_projects_compute_the_bytes_of_python(tmp_path: Path, dtype: str, weights: str):
    graph = every_kernel(dtype, weights)
    made = intaglio.deploy(graph, "linux-riscv64", tmp_path)
    assert set(made.kernels) == {"conv", "depthwise", "elementwise", "move", "pool", "softmax"}
    for define in ("-DITG_PLAIN", "-DITG_SOFT_FLOAT"):  # floats, then the integer requantisation
        assert run(build(tmp_path, define)) == "vector 0: ok\nvector 1: ok\n0"
    x = np.random.default_rng(1).integers(0, 256, graph.inputs[0].shape).astype(np.uint8)
    x = x.view(np.uint8 if dtype == "u8" else np.int8)
    x.tofile(tmp_path / "x.bin")
    outs = [f"{n}.bin" for n in graph.output_names]
    assert run(tmp_path / "run", "x.bin", *outs) == "0"
    want = intaglio.interpret(graph, {"x": x})
    with intaglio.open(intaglio.compile(graph)) as session:
        compiled = session.run({"x": x})
    for name in graph.output_names:
        assert (tmp_path / f"{name}.bin").read_bytes() == want[name].tobytes()
        assert compiled[name].tobytes() == want[name].tobytes()


@needs_gcc
def test_tables_of_16_bit_sums_residuals_and_float_clips(tmp_path: Path):
    graph = epilogues()
    intaglio.deploy(graph, "linux-riscv64", tmp_path)
    assert (tmp_path / "model.c").read_text().count("itg_more") == 3
    assert run(build(tmp_path)) == "vector 0: ok\nvector 1: ok\n0"


def test_weights_may_have_a_memory_of_their_own(tmp_path: Path):
    apart = intaglio.deploy(every_kernel(), "cortex-m55", tmp_path / "apart")
    script = (tmp_path / "apart/link.ld").read_text()
    assert "> WEIGHTS" in script
    assert "WEIGHTS (r) : ORIGIN = 0x38000000" in script
    assert apart.emulated
    own = intaglio.deploy(every_kernel(), "cortex-m55", tmp_path / "own", flash=1 << 20)
    assert "WEIGHTS (" not in (tmp_path / "own/link.ld").read_text()
    assert not own.emulated  # QEMU's machine has less flash
    board = tmp_path / "small.toml"
    text = (boards.BOARDS / "cortex-m55.toml").read_text()
    board.write_text(text.replace("weights = 0x800000", "weights = 1024"))
    with pytest.raises(Unsupported, match="bytes of memory for weights"):
        intaglio.deploy(every_kernel(), str(board), tmp_path / "none")
    assert not (tmp_path / "none").exists()


@needs_gcc
def test_nearest_neighbours(tmp_path: Path):
    """Upsampling of detectors, and indices that are no multiple."""
    x = Value(Type("i8", (1, 3, 4, 6)), "x")
    outs = []
    for index, axis in (([0, 0, 1, 1, 2, 2, 3, 3], 2), ([0, 0, 1, 2, 2, 5, 3, 3, 3], 3), ([2], 1)):
        table = np.array(index, np.int32)[:, None]
        outs.append(
            ops.interpolate(x, constant(table), constant(np.float32(table * 0 + 1)), axis=axis)
        )
    intaglio.deploy(Graph([x], outs, ["a", "b", "c"], "nearest"), "linux-riscv64", tmp_path)
    assert run(build(tmp_path)) == "vector 0: ok\nvector 1: ok\n0"


@pytest.mark.parametrize("seed", range(20))
def test_runs_of_nearest_neighbours_are_the_index(seed: int):
    random = np.random.default_rng(seed)
    for index in (random.integers(0, 4, 12), np.sort(random.integers(0, 6, 12))):
        found = [
            (first + i * times + k, index[first] + i * by)
            for first, count, times, by in nearest_runs(index.tolist())
            for i in range(count)
            for k in range(times)
        ]
        assert found == list(enumerate(index))


@needs_gcc
def test_functions_of_floats(tmp_path: Path):
    made = intaglio.deploy(floats(), "linux-riscv64", tmp_path)
    assert "floats" in made.kernels
    assert run(build(tmp_path)) == "vector 0: ok\nvector 1: ok\n0"
    x = np.random.default_rng(1).integers(-128, 128, (1, 5, 6, 7)).astype(np.int8)
    x.tofile(tmp_path / "x.bin")
    want = intaglio.interpret(floats(), {"x": x})
    assert run(tmp_path / "run", "x.bin", *(f"{n}.bin" for n in want)) == "0"
    for name, w in want.items():
        found = np.fromfile(tmp_path / f"{name}.bin", np.float32).reshape(w.shape)
        np.testing.assert_allclose(found, w, rtol=2e-5, atol=1e-7, err_msg=name)


def test_the_exponential_is_close_to_that_of_numpy():
    x = -np.arange(0, 87, 1e-3, np.float32)
    exact = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(exponential(x), exact, rtol=1.5e-7)
    assert exponential(np.float32([0, -87.1, -np.inf])).tolist() == [1, 0, 0]


@needs_gcc
def test_wrong_results_are_found_and_weights_may_be_a_file(tmp_path: Path):
    intaglio.deploy(every_kernel(), "linux-riscv64", tmp_path, weights_in="file", name="net")
    program = build(tmp_path)
    assert run(program).endswith("ok\n0")
    weights = bytearray((tmp_path / "net.weights").read_bytes())
    weights[0] ^= 0x40
    (tmp_path / "net.weights").write_bytes(weights)
    assert "WRONG" in run(program)
    (tmp_path / "net.weights").write_bytes(weights[:-1])
    assert run(program) == "net.weights is missing or has another size\n2"


def test_the_library_has_no_heap_stdio_or_threads(tmp_path: Path):
    intaglio.deploy(every_kernel(), "cortex-m4", tmp_path)
    assert not (tmp_path / "itg/itg_neon.h").exists()  # another core's
    for path in [tmp_path / "model.c", *tmp_path.glob("itg/*")]:
        text = path.read_text()
        assert not re.search(r"\b(malloc|calloc|free|printf|fopen|pthread\w*)\s*\(", text), path
        assert set(re.findall(r"#include <(\S+)>", text)) <= {
            "stdint.h", "stddef.h", "string.h", "arm_mve.h"
        }  # fmt: skip
    assert '.itg_arena"' in (tmp_path / "model.c").read_text()
    assert '.itg_weights"' in (tmp_path / "model_weights.c").read_text()


REFUSED = {
    "no room": ({"board": "cortex-m4", "ram": 4096}, Unsupported, "bytes of RAM"),
    "no flash": ({"board": "cortex-m4", "flash": 8192}, Unsupported, "bytes of flash"),
    "no board": ({"board": "cortex-m99"}, BadInput, "no board is called 'cortex-m99'"),
    "no file": ({"board": "cortex-m3", "weights_in": "file"}, BadInput, "has flash and ram"),
    "no name": ({"board": "cortex-m3", "name": "a b"}, BadInput, "a C identifier"),
    "no section": ({"board": "cortex-m3", "arena_section": 'x"'}, BadInput, "section is"),
    "linux": ({"board": "linux-armv7", "ram": 4096}, BadInput, "without an operating system"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_refusals_write_nothing(tmp_path: Path, why: str):
    keywords, error, words = REFUSED[why]
    with pytest.raises(error, match=re.escape(words)) as e:
        intaglio.deploy(every_kernel(), folder=tmp_path / "p", **keywords)
    assert "\n" not in str(e.value)
    assert not (tmp_path / "p").exists()


def test_an_unsupported_op_is_one_line_and_exit_code_2(tmp_path: Path):
    x = Value(Type("f32", (1, 4)), "x")
    graph = Graph([x], [ops.exp(x)], ["y"])
    intaglio.save_onnx(graph, tmp_path / "m.onnx")
    out = tmp_path / "p"
    command = ["deploy", str(tmp_path / "m.onnx"), "--board", "cortex-m4", "-o", str(out)]
    done = subprocess.run(
        [sys.executable, "-m", "intaglio", *command], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "no op 'exp'" in done.stderr
    assert not out.exists()


def test_the_command_prints_sizes_beforehand_and_keeps_other_files(tmp_path: Path):
    x = Value(Type("i8", (1, 4, 5, 5)), "x")
    intaglio.save_onnx(Graph([x], [Net().conv(x, 4, 3)], ["y"]), tmp_path / "m.onnx")
    out = tmp_path / "p"
    command = ["deploy", str(tmp_path / "m.onnx"), "--board", "riscv32", "-o", str(out)]
    first = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert "RAM" in first.output
    assert "arena" in first.output
    again = CliRunner().invoke(cli, command)
    assert "not empty" in str(again.exception)


@pytest.mark.parametrize("name", boards.names())
def test_boards_are_read(name: str):
    board = boards.load(name)
    assert (board.memory is None) == name.startswith("linux-")
    assert board.form in FORMS


@pytest.mark.parametrize(
    "change",
    [
        ("form", '"avx2"'),
        ("kind", "3"),
        ("flags", '"$(rm x)"'),
        ("ram", "-1"),
        ("pointer_bytes", "99"),
    ],
)
def test_a_bad_board_is_one_line(tmp_path: Path, change: tuple[str, str]):
    key, value = change
    text = (boards.BOARDS / "cortex-m4.toml").read_text()
    (tmp_path / "b.toml").write_text(re.sub(rf"^{key} = .*", f"{key} = {value}", text, flags=re.M))
    with pytest.raises(BadFile, match=rf"b.toml: \S*{key} is"):
        boards.load(str(tmp_path / "b.toml"))


def test_scratch_lies_in_free_bytes():
    def tensor(at: int, size: int) -> Tensor:
        return Tensor(Type("i8", (size,)), "arena", at)

    a, b, c = tensor(0, 64), tensor(64, 64), tensor(0, 32)
    source, out = Tensor(Type("i8", (64,)), "input"), Tensor(Type("i8", (32,)), "output")
    steps = [
        Step("s", [source], [a]),
        Step("s", [a], [b]),
        Step("s", [b], [c]),
        Step("s", [c], [out]),
    ]
    offsets, size = place_scratch(Plan([source], [out], steps, 128), lambda step: 20)
    assert offsets == [64, 128, 32, 32]
    assert size == 160
