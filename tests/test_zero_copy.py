"""Arrays that are used in place: bindings, and arrays of other libraries by DLPack."""

from __future__ import annotations

import ctypes
import gc
import sys
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from tests.package.samples import SAMPLES
from tests.test_ranges import CONVOLUTIONS, PICTURE, feeds_of
from tests.test_session import big
from tests.test_state import X, counting

import intaglio
from intaglio import BadInput, ops
from intaglio.dlpack import TYPES, _Tensor
from intaglio.ir import Graph, Type, Value

CODES = {np.dtype(t): code for code, t in TYPES.items()}
_new = ctypes.pythonapi.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Foreign:
    """An array of another library: no ndarray, and it offers DLPack."""

    def __init__(self, array: np.ndarray, device: int = 1, **fields: int):
        self.array, self.device, self.fields = array, device, fields
        self.shape, self.dtype = array.shape, f"foreign.{array.dtype}"

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def __dlpack__(self) -> object:
        a = self.array
        code, bits = CODES[a.dtype]
        n = max(a.ndim, 1)
        shape, strides = (ctypes.c_int64 * n)(*a.shape), (ctypes.c_int64 * n)(*a.strides)
        for i in range(a.ndim):
            strides[i] //= a.itemsize
        self.tensor = _Tensor(
            a.ctypes.data - 16,
            (ctypes.c_int32 * 2)(self.device, 0),
            a.ndim,
            self.fields.get("code", code),
            bits,
            self.fields.get("lanes", 1),
            shape,
            strides if not a.flags.c_contiguous else None,
            16,
        )
        self.kept = shape, strides
        return _new(ctypes.addressof(self.tensor), b"dltensor", None)


class Unexportable(Foreign):
    def __dlpack__(self) -> object:
        raise BufferError("it needs a gradient")

    def detach(self) -> None: ...

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise RuntimeError("it needs a gradient")


@pytest.fixture(scope="module")
def session():
    with intaglio.open(big(5000)[0], threads=1) as opened:
        yield opened


def negation(dtype: str) -> Graph:
    x = Value(Type(dtype, (2, 3)), "x")
    return Graph([x], [ops.neg(x)], ["y"])


def ramp(n: int = 5000) -> np.ndarray:
    return np.linspace(-2, 2, n, dtype=np.float32)


# ---- DLPack --------------------------------------------------------------------------------------
def test_inputs_and_outputs_of_another_library(session):
    x, y = ramp(), np.zeros(5000, np.float32)
    want = np.exp(x)
    np.testing.assert_allclose(session.run({"x": Foreign(x)})["y"], want, rtol=1e-4)
    given = Foreign(y)
    got = session.run({"x": Foreign(x)}, out={"y": given})
    assert got["y"] is given
    np.testing.assert_allclose(y, want, rtol=1e-4)
    strided = Foreign(np.repeat(x, 3)[::3])  # is copied
    np.testing.assert_allclose(session.run({"x": strided})["y"], want, rtol=1e-4)
    with pytest.raises(BadInput, match="writable and C-contiguous"):
        session.run({"x": x}, out={"y": Foreign(np.zeros(15_000, np.float32)[::3])})
    with pytest.raises(BadInput, match="shares memory with an input"):
        session.run({"x": Foreign(x)}, out={"y": Foreign(x)})


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i8", "i32", "i64"])
def test_types(dtype):
    kind = intaglio.dtypes.numpy_of(dtype)
    x, y = np.arange(6).reshape(2, 3).astype(kind), np.zeros((2, 3), kind)
    with intaglio.open(intaglio.compile(negation(dtype))) as session:
        got = session.run({"x": Foreign(x)}, out={"y": Foreign(y)})
        np.testing.assert_array_equal(y.astype(np.float32), -x.astype(np.float32))
        assert isinstance(got["y"], Foreign)


def test_scalars_and_empty_arrays():
    for shape in ((), (0, 3)):
        x = Value(Type("f32", shape), "x")
        with intaglio.open(intaglio.compile(Graph([x], [ops.neg(x)], ["y"]))) as session:
            got = session.run({"x": Foreign(np.ones(shape, np.float32))})["y"]
            np.testing.assert_array_equal(got, -np.ones(shape, np.float32))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Foreign(ramp(), device=2), r"lies in memory of a device \(CUDA\); copy it to the CPU"),
        (Foreign(ramp(), device=99), "of DLPack's kind 99"),
        (Foreign(ramp(), code=5), "elements of DLPack's type 5 with 32 bits"),
        (Foreign(ramp(), lanes=4), "elements of DLPack's type 2"),
        (Foreign(ramp(3)), r"input 'x' has shape \(3,\)"),
        (Foreign(ramp().astype(np.float16)), "has dtype float16"),
        (Foreign(ramp().astype(ml_dtypes.bfloat16)), "has dtype bfloat16"),
        (
            Unexportable(ramp()),
            r"cannot be read as an array \(it needs a gradient\); give x.detach",
        ),
    ],
)
def test_refused_inputs(session, given, words):
    with pytest.raises(BadInput, match=words):
        session.run({"x": given})


def test_refused_outputs(session):
    with pytest.raises(BadInput, match=r"out\['y'\] lies in memory of a device"):
        session.run({"x": ramp()}, out={"y": Foreign(ramp(), device=2)})
    with pytest.raises(BadInput, match="writable and C-contiguous"):
        session.run({"x": ramp()}, out={"y": Unexportable(ramp())})


# ---- bindings ------------------------------------------------------------------------------------
def test_a_binding_reads_and_writes_in_place(session):
    x, y = ramp(), np.zeros(5000, np.float32)
    binding = session.bind({"x": x}, {"y": y})
    assert binding.inputs["x"] is x
    for k in range(1, 5):
        x[:] = ramp() / k
        assert binding.run()["y"] is y
        np.testing.assert_allclose(y, np.exp(ramp() / k), rtol=1e-4)
        session.run({"x": ramp()})  # others run in between
    second = session.bind()  # arrays of its own
    second.inputs["x"][:] = 1
    np.testing.assert_allclose(second.run()["y"], np.exp(1), rtol=1e-4)
    np.testing.assert_allclose(binding.run()["y"], np.exp(ramp() / 4), rtol=1e-4)


def test_a_binding_allocates_nothing(session):
    binding = session.bind({"x": ramp()})
    for _ in range(100):
        binding.run()
    gc.collect()
    gc.disable()
    try:
        before = sys.getallocatedblocks()
        for _ in range(1000):
            binding.run()
        assert sys.getallocatedblocks() - before < 10  # of 1,000 runs: the numbers of this test
        tracemalloc.start()
        binding.run()
        tracemalloc.reset_peak()
        begin = tracemalloc.get_traced_memory()[0]
        for _ in range(10):
            binding.run()
        assert tracemalloc.get_traced_memory()[1] - begin < 1024  # an output has 20,000 bytes
    finally:
        tracemalloc.stop()
        gc.enable()


def test_bindings_of_several_shapes_of_one_session():
    with intaglio.open(intaglio.compile(CONVOLUTIONS, dims=PICTURE), threads=2) as session:
        made = []
        for n, h in ((1, 9), (3, 20), (2, 64)):
            feeds = feeds_of(CONVOLUTIONS, {"n": n, "h": h, "w": 33})
            made.append((session.bind(feeds), session.run(feeds)))
        for _ in range(2):
            for binding, want in made:
                for name, a in binding.run().items():
                    np.testing.assert_allclose(a, want[name], 1e-5, 1e-6)
        with pytest.raises(BadInput, match="input 'x' is missing"):
            session.bind()


def test_state_internal_memory_and_dynamic_outputs():
    with intaglio.open(intaglio.compile(counting())) as session:
        binding = session.bind({"x": X})
        for step in range(3):
            np.testing.assert_array_equal(binding.run()["y"], X + step)
    memory = intaglio.InternalMemory(1)
    with intaglio.open(big(5000)[0], internal=memory) as session:
        np.testing.assert_allclose(session.bind({"x": ramp()}).run()["y"], np.exp(ramp()), 1e-4)
    sample = SAMPLES["dynamic"]()
    with intaglio.open(sample.package()) as session:
        binding = session.bind(sample.inputs)
        for _ in range(2):
            got = binding.run()
            for name, want in sample.outputs.items():
                np.testing.assert_array_equal(got[name], want)
                assert np.shares_memory(got[name], binding.outputs[name]) or not want.size


def test_bindings_of_other_libraries_keep_their_memory(session):
    x = Foreign(ramp())
    y = Foreign(np.zeros(5000, np.float32))
    binding = session.bind({"x": x}, {"y": y})
    binding.run()
    np.testing.assert_allclose(y.array, np.exp(ramp()), rtol=1e-4)
    assert np.shares_memory(binding.inputs["x"], x.array)


def test_a_closed_session_does_not_run():
    session = intaglio.open(big(100)[0])
    binding = session.bind()
    session.close()
    with pytest.raises(BadInput, match="closed"):
        binding.run()


@pytest.mark.parametrize(
    ("inputs", "outputs", "words"),
    [
        ([1], None, "inputs is a list of 1; it maps names"),
        ({"x": [1.0]}, None, r"inputs\['x'\] is a list of 1, which cannot be used in place"),
        ({"x": np.zeros(10_000, np.float32)[::2]}, None, "cannot be used in place"),
        ({"x": np.zeros(5000)}, None, "has dtype float64"),
        ({"z": np.zeros(5000, np.float32)}, None, "no input is called 'z'"),
        ({}, {"z": np.zeros(3)}, "no output is called 'z'"),
        ({}, {"y": np.zeros(3, np.float32)}, r"out\['y'\] is an array"),
        ({}, [3], "out is a list of 1"),
        ({"x": Foreign(ramp(), device=2)}, None, r"inputs\['x'\] lies in memory of a device"),
    ],
)
def test_wrong_bindings(session, inputs, outputs, words):
    with pytest.raises(BadInput, match=words):
        session.bind(inputs, outputs)


def test_a_padded_shape_cannot_be_bound():
    package = intaglio.compile(CONVOLUTIONS, dims={"n": [1, 4], "h": 32, "w": 32})
    with intaglio.open(package) as session:
        feeds = feeds_of(CONVOLUTIONS, {"n": 3, "h": 32, "w": 32})
        assert session.run(feeds)["y"].shape[0] == 3
        with pytest.raises(BadInput, match="cannot be bound: the model pads them"):
            session.bind(feeds)


# ---- PyTorch -------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i8", "i64"])
def test_torch(dtype):
    torch = pytest.importorskip("torch")
    names = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "i8": "int8", "i64": "int64"}
    kind = getattr(torch, names[dtype])
    x, y = torch.arange(6).reshape(2, 3).to(kind), torch.zeros(2, 3, dtype=kind)
    with intaglio.open(intaglio.compile(negation(dtype))) as session:
        assert session.run({"x": x}, out={"y": y})["y"] is y
        assert torch.equal(y, -x)
        made = session.run({"x": x})["y"]
        if dtype != "bf16":
            assert torch.equal(torch.from_dlpack(made), -x)
        binding = session.bind({"x": x}, {"y": y})
        x += 1
        binding.run()
        assert torch.equal(y, -x)
        if dtype == "f32":
            with pytest.raises(BadInput, match=r"give x\.detach\(\)\.cpu\(\)\.numpy\(\)"):
                session.run({"x": x.clone().requires_grad_()})
            turned = x.T.contiguous().T
            np.testing.assert_array_equal(session.run({"x": turned})["y"], -x.numpy())
            with pytest.raises(BadInput, match="cannot be used in place"):
                session.bind({"x": turned})
