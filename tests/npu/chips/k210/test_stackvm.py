"""Code for the chip's CPU: decoding, tensor functions beside numpy, and hostile code."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from intaglio.errors import BadFile, IntaglioError, Unsupported
from intaglio.npu.chips.k210 import disassembly, stackvm_code
from intaglio.npu.chips.k210.kmodel5 import DTYPES
from intaglio.npu.chips.k210.model import Function, Kmodel, Module, Port, Range
from intaglio.npu.chips.k210.simulate import Machine
from intaglio.npu.chips.k210.stackvm_code import TENSOR, TENSORS, instructions

U8, F32, I32 = (DTYPES.index(n) for n in ("u8", "f32", "i32"))
INPUT, OUTPUT, RDATA, DATA = range(4)


def emit(name: str, *numbers: float) -> bytes:
    """The bytes of an instruction."""
    plain = {form.name: (i, form) for i, form in enumerate(stackvm_code._plain())}
    if name in plain:
        opcode, form = plain[name]
        return bytes([opcode]) + form.packed.pack(*numbers)
    number = next(k for k, (n, _) in TENSORS.items() if n == name.removeprefix("tensor."))
    form = stackvm_code._tensors()[number]
    return struct.pack("<BH", TENSOR, number) + form.packed.pack(*numbers)


def shape(register: int, *dims: int) -> bytes:
    """Code that puts a shape into a register."""
    pushes = b"".join(emit("ldc_i4", d) for d in dims)
    return pushes + emit("stshape", register, len(dims))


def dense(dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(np.prod(dims[i + 1 :])) for i in range(len(dims)))


def at(location: int, offset: int = 0) -> bytes:
    return emit("lea_buffer", location, 0, offset)


def machine(
    code: bytes, in_shape, out_shape, dtype="f32", to="f32", constants: bytes = b"", data: int = 256
) -> Machine:
    """A chip with one stackvm function that has one input and one output."""
    sizes = [
        int(np.prod(s)) * (4 if d == "f32" else 1) for s, d in ((in_shape, dtype), (out_shape, to))
    ]
    ports = [
        [Port(tuple(s), Range(place, 0, size, kind))]
        for s, place, size, kind in zip(
            (in_shape, out_shape), ("input", "output"), sizes, (dtype, to), strict=True
        )
    ]
    function = Function(*ports, [], 0, len(code))
    sections = {".text": code, ".rdata": constants}
    return Machine(Kmodel(5, [Module("stackvm", [function], {"data": data}, sections)]))


def run(code: bytes, x, out_shape, to="f32", constants: bytes = b"") -> np.ndarray:
    kind = "f32" if x.dtype == np.float32 else "u8"
    made = machine(code + emit("ret"), x.shape, out_shape, kind, to, constants)
    return made.run({"input0": x})["output0"]


def one_operand(x, out_shape) -> bytes:
    """Registers 0 to 2: the shape and strides of the input, the strides of the output."""
    return shape(0, *x.shape) + shape(1, *dense(x.shape)) + shape(2, *dense(out_shape))


def floats(*dims: int) -> np.ndarray:
    return np.random.default_rng(3).normal(0, 3, dims).astype(np.float32)


def test_every_instruction_is_decoded():
    forms = [*stackvm_code._plain(), *stackvm_code._tensors().values()]
    code = b"".join(emit(form.name, *[0] * len(form.keys)) for form in forms)
    found = list(instructions(code))
    assert len(found) == 0x5E + len(TENSORS)
    assert [i.name for i in found][0x59] == "ret"
    assert found[-1].end == len(code)
    tensors = [i.name for i in found if i.name.startswith("tensor.")]
    assert tensors == [f"tensor.{n}" for n, _ in TENSORS.values()]


def test_quantising_rounds_halves_to_even():
    x = np.array([[-3, -0.5, 0.25, 0.75, 1.25, 300]], np.float32)
    code = one_operand(x, x.shape) + at(INPUT) + at(OUTPUT)
    code += emit("ldc_r4", 2.0) + emit("ldc_r4", 3.0) + emit("quantize", F32, U8, 0, 1, 2)
    assert run(code, x, x.shape, "u8").tolist() == [[0, 2, 4, 4, 6, 255]]


def test_dequantise():
    x = np.arange(6, dtype=np.uint8).reshape(2, 3)
    code = one_operand(x, x.shape) + at(INPUT) + at(OUTPUT)
    code += emit("ldc_r4", 0.5) + emit("ldc_r4", -1.0) + emit("dequantize", U8, F32, 0, 1, 2)
    assert np.array_equal(run(code, x, x.shape), x * np.float32(0.5) - 1)


def test_slice_and_copy_with_strides():
    x = floats(1, 2, 6, 6)
    code = one_operand(x, (1, 2, 2, 3)) + shape(3, 0, 0, 1, 0) + shape(4, 1, 2, 5, 6)
    code += shape(5, 1, 1, 2, 2) + at(INPUT) + at(OUTPUT) + emit("slice", F32, 0, 1, 2, 3, 4, 5)
    assert np.array_equal(run(code, x, (1, 2, 2, 3)), x[:, :, 1:5:2, ::2])
    code = shape(0, 2, 3) + shape(1, 1, 2) + shape(2, 3, 1)  # a transposition by strides
    code += at(INPUT) + at(OUTPUT) + emit("copy", F32, 0, 1, 2)
    x = floats(3, 2)
    assert np.array_equal(run(code, x, (2, 3)), x.T)


def test_pad_and_crop():
    x = floats(1, 1, 3, 3)
    paddings = [(0, 0, 0), (0, 0, 0), (1, 2, 0), (-1, 1, 0)]
    code = one_operand(x, (1, 1, 6, 3))
    code += b"".join(emit("ldc_i4", n) for p in paddings for n in p) + emit("stpaddings", 0, 4)
    code += at(INPUT) + at(OUTPUT) + emit("ldc_r4", 7.0) + emit("pad", F32, 0, 1, 2, 0, 0)
    want = np.pad(x[..., 1:], ((0, 0), (0, 0), (1, 2), (0, 1)), constant_values=7)
    assert np.array_equal(run(code, x, (1, 1, 6, 3)), want)


def test_matmul_softmax_and_reduce():
    x, w, b = floats(2, 5), floats(5, 4), floats(4)
    code = shape(0, 2, 5) + shape(1, 5, 1) + shape(2, 5, 4) + shape(3, 4, 1) + shape(4, 2, 4)
    code += at(INPUT) + at(RDATA) + at(RDATA, w.nbytes) + at(OUTPUT)
    code += emit("matmul", 0, 1, 2, 3, 4, 3, -2.0, 3.0)
    found = run(code, x, (2, 4), constants=w.tobytes() + b.tobytes())
    assert np.allclose(found, np.clip(x @ w + b, -2, 3), atol=1e-5)
    code = one_operand(x, x.shape) + at(INPUT) + at(OUTPUT) + emit("softmax", F32, 0, 1, 2, 1, 1.0)
    assert np.allclose(run(code, x, x.shape).sum(1), 1)
    code = one_operand(x, (2, 1)) + shape(3, 1) + at(INPUT) + at(OUTPUT) + emit("ldc_r4", 0.0)
    found = run(code + emit("reduce", F32, 0, 1, 2, 0, 3, 1), x, (2, 1))
    assert np.allclose(found, x.mean(1, keepdims=True))


def test_elementwise_functions():
    x, c = floats(1, 3, 4), floats(3, 1)
    code = one_operand(x, x.shape) + shape(3, 3, 1) + shape(4, 1, 1)
    code += at(INPUT) + at(RDATA) + at(OUTPUT)
    for kind, function in enumerate((np.add, np.subtract, np.multiply, np.divide)):
        last = emit("binary", F32, 0, 1, 3, 4, 0, 2, kind, -1e9, 1e9)
        assert np.array_equal(run(code + last, x, x.shape, constants=c.tobytes()), function(x, c))
    code = one_operand(x, x.shape) + at(INPUT) + at(OUTPUT)
    assert np.allclose(run(code + emit("unary", F32, 0, 1, 2, 15), x, x.shape), np.tanh(x))
    assert np.allclose(run(code + emit("sigmoid", F32, 0, 1, 2), x, x.shape), 1 / (1 + np.exp(-x)))
    code = one_operand(x, (4, 1, 3)) + shape(3, 2, 0, 1) + at(INPUT) + at(OUTPUT)
    assert np.array_equal(
        run(code + emit("transpose", F32, 0, 1, 2, 3), x, (4, 1, 3)), x.transpose(2, 0, 1)
    )


def test_windows():
    x, w, b = floats(1, 4, 6, 5), floats(6, 2, 3, 3), floats(6)
    out = 1, 6, 3, 5
    code = one_operand(x, out) + shape(3, *w.shape) + shape(4, *dense(w.shape)) + shape(5, 1)
    code += at(INPUT) + at(RDATA) + at(RDATA, w.nbytes) + at(OUTPUT)
    code += b"".join(emit("ldc_i4", n) for n in (1, 1, 0, 1, 1, 0))
    code += emit("conv2d", F32, 0, 1, 3, 4, 5, 2, 2, 2, 1, 1, 1, -1e9, 1e9)
    wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    want = np.zeros(out)
    for o in range(6):
        for i in range(3):
            for j in range(5):
                window = wide[0, o // 3 * 2 : o // 3 * 2 + 2, 2 * i : 2 * i + 3, j : j + 3]
                want[0, o, i, j] = (window * w[o]).sum() + b[o]
    assert np.allclose(run(code, x, out, constants=w.tobytes() + b.tobytes()), want, atol=1e-4)
    code = one_operand(x, (1, 4, 3, 3)) + at(INPUT) + emit("ldc_r4", -1e9) + at(OUTPUT)
    code += b"".join(emit("ldc_i4", n) for n in (1, 1, 0, 1, 1, 0))
    code += emit("reduce_window2d", F32, 2, 0, 1, 2, 3, 3, 2, 2, 1, 1, -1e9, 1e9)
    wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    taps = [wide[:, :, i : i + 5 : 2, j : j + 5 : 2] for i in range(3) for j in range(3)]
    assert np.array_equal(run(code, x, (1, 4, 3, 3)), np.max(taps, 0))


def test_nearest_neighbours_and_tables():
    x = floats(1, 2, 3, 3)
    code = one_operand(x, (1, 2, 6, 6)) + emit("ldc_i4", 6) + emit("ldc_i4", 6)
    code += at(INPUT) + at(OUTPUT) + emit("resize_image", F32, 0, 1, 2, 0, 0, 1)
    assert np.array_equal(run(code, x, (1, 2, 6, 6)), x.repeat(2, 2).repeat(2, 3))
    x, table = np.arange(12, dtype=np.uint8).reshape(3, 4), np.arange(256, dtype=np.uint8)[::-1]
    code = one_operand(x, x.shape) + at(INPUT) + at(RDATA) + at(OUTPUT)
    code += emit("ldc_i4", 0) + emit("ldc_i4", 255) + emit("lut1d", U8, 0, 1, 2, 256)
    assert np.array_equal(run(code, x, x.shape, "u8", table.tobytes()), table[x])


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (emit("pop"), "pops from an empty stack"),
        (emit("ldc_i4", 1) + emit("br", -9), "jumps to byte 1; no instruction begins there"),
        (emit("br", -7), "jumps to byte -2"),
        (emit("br", -5), "more than 1048576 instructions"),
        (emit("ldc_i4_1") + emit("br", -6), "pushes more than 4096"),
        (b"\x5f", "no instruction"),
        (b"\x5e\x07\x00", "calls tensor 0x7"),
        (emit("ldc_i4", 1)[:3], "ends within ldc_i4"),
        (emit("call", 0, 0), "is call; that is not simulated"),
        (
            shape(0, 1 << 20, 1 << 20)
            + shape(1, 0, 0)
            + at(INPUT)
            + at(OUTPUT)
            + emit("copy", F32, 0, 1, 1),
            "computes more than",
        ),
        (shape(0, 8) + shape(1, 1) + at(INPUT) + at(OUTPUT) + emit("copy", F32, 0, 1, 1), "of 16"),
        (
            shape(0, 2) + shape(1, 1) + at(INPUT) + at(RDATA) + emit("copy", F32, 0, 1, 1),
            "constants",
        ),
        (shape(0, -1) + shape(1, 1) + at(INPUT) + at(OUTPUT) + emit("copy", F32, 0, 1, 1), "shape"),
        (at(INPUT) + at(OUTPUT) + emit("copy", F32, 0, 1, 1), "empty register 0"),
        (emit("ldc_i4", 1) + emit("ldc_i4", 1) + emit("copy", F32, 0, 1, 1), "as an address"),
        (at(64), "memory 'kpu'"),
        (emit("gru", 0, 0, 0, 0), "tensor.gru; that is not simulated"),
        (b"".join(emit("ldc_i4", 1) for _ in range(9)) + emit("stshape", 0, 9), "rank 9"),
    ],
)
def test_hostile_code_is_refused_in_a_line(code, words):
    chip = machine(code, (4,), (4,), constants=bytes(64))
    with pytest.raises((BadFile, Unsupported), match=words) as e:
        chip.run({"input0": np.zeros(4, np.float32)})
    assert "\n" not in str(e.value)


def outcome(chip: Machine, x: np.ndarray) -> str | None:
    """The words of the error, or None if the code runs."""
    try:
        list(disassembly.lines(chip.model, True))
        with np.errstate(all="ignore"):
            chip.run({"input0": x})
    except IntaglioError as e:
        return str(e)
    return None


def test_mutated_code_is_refused_or_runs():
    """2,000 mutations of code with many functions: an IntaglioError of one line, or outputs."""
    rng = np.random.default_rng(0)
    x = floats(1, 2, 6, 6)
    code = one_operand(x, x.shape) + shape(3, 1, 2, 6, 6)
    for name, *numbers in (
        ("copy", F32, 0, 1, 2),
        ("sigmoid", F32, 0, 1, 2),
        ("softmax", F32, 0, 1, 2, 1, 1.0),
        ("unary", F32, 0, 1, 2, 15),
        ("resize_image", F32, 0, 1, 2, 0, 0, 1),
    ):
        first = emit("ldc_i4", 6) + emit("ldc_i4", 6) if name == "resize_image" else b""
        code += first + at(INPUT) + at(OUTPUT) + emit(name, *numbers)
    code += emit("ret")
    assert machine(code, x.shape, x.shape).run({"input0": x})["output0"].shape == x.shape
    refused = 0
    for _ in range(2000):
        changed = bytearray(code)
        for place in rng.integers(0, len(code), int(rng.integers(1, 4))):
            changed[place] = int(rng.integers(256))
        chip = machine(bytes(changed), x.shape, x.shape)
        words = outcome(chip, x)
        refused += words is not None
        assert "\n" not in (words or "")
    assert refused > 500


def test_inspection_shows_the_code():
    x = floats(2, 2)
    code = one_operand(x, x.shape) + at(INPUT) + at(OUTPUT) + emit("unary", F32, 0, 1, 2, 15)
    chip = machine(code, x.shape, x.shape)
    text = "\n".join(disassembly.lines(chip.model))
    assert "tensor.unary" in text
    assert "dtype=f32 shape=2x2 strides=2x1 strides_to=2x1 kind=tanh" in text
    assert "stshape" not in text
    assert "stshape" in "\n".join(disassembly.lines(chip.model, True))
    assert disassembly.facts(chip.model)["modules"][0]["functions"][0]["code"][-1]["kind"] == 15
