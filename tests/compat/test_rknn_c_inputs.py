"""Inputs of RKNN's C API: element types, layouts and pass_through give what Python gives."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_char, c_int, c_uint8, c_uint32, c_uint64, c_void_p
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from tests.compat import models

from intaglio import native
from intaglio.compat.rknn.api import RKNN
from intaglio.package import Package

BUILD = Path(native.library()._name).parent
pytestmark = pytest.mark.skipif(
    not (BUILD / "librknnrt.so").exists(), reason="needs a build of the checkout"
)
TYPES = {"float32": 0, "float16": 1, "int8": 2, "uint8": 3, "int16": 4, "int32": 6, "int64": 8}
NCHW, NHWC, NC1HWC2, UNDEFINED = range(4)
INPUT_ATTR, OUTPUT_ATTR, NATIVE_INPUT_ATTR = 1, 2, 8
SHARE_WEIGHTS = 0x20


class Input(ctypes.Structure):
    _fields_ = (
        ("index", c_uint32),
        ("buf", c_void_p),
        ("size", c_uint32),
        ("pass_through", c_uint8),
        ("type", c_int),
        ("fmt", c_int),
    )


class Output(ctypes.Structure):
    _fields_ = (
        ("want_float", c_uint8),
        ("is_prealloc", c_uint8),
        ("index", c_uint32),
        ("buf", c_void_p),
        ("size", c_uint32),
    )


class Attr(ctypes.Structure):
    _fields_ = (
        ("index", c_uint32),
        ("n_dims", c_uint32),
        ("dims", c_uint32 * 16),
        ("name", c_char * 256),
        ("n_elems", c_uint32),
        ("size", c_uint32),
        ("fmt", c_int),
        ("type", c_int),
        ("qnt_type", c_int),
        ("fl", ctypes.c_int8),
        ("zp", ctypes.c_int32),
        ("scale", ctypes.c_float),
        ("w_stride", c_uint32),
        ("size_with_stride", c_uint32),
        ("pass_through", c_uint8),
        ("h_stride", c_uint32),
    )


class Extend(ctypes.Structure):
    _fields_ = (("ctx", c_uint64), ("rest", c_uint8 * 128))


class Context:
    """A context of librknnrt."""

    def __init__(self, model: Path | bytes, flag: int = 0, share: Context | None = None):
        self.lib = ctypes.CDLL(str(BUILD / "librknnrt.so"))
        self.handle = c_uint64()
        data, size = (model, len(model)) if isinstance(model, bytes) else (str(model).encode(), 0)
        extend = Extend(share.handle.value) if share else None
        pointer = byref(extend) if extend else None
        assert self.lib.rknn_init(byref(self.handle), data, size, flag, pointer) == 0

    def close(self) -> None:
        assert self.lib.rknn_destroy(self.handle) == 0

    def attr(self, command: int, index: int = 0) -> Attr:
        found = Attr(index)
        size = ctypes.sizeof(found)
        assert self.lib.rknn_query(self.handle, command, byref(found), size) == 0
        return found

    def run(self, *arrays: np.ndarray, fmt: int = NHWC, through: bool = False) -> list[np.ndarray]:
        """All outputs as float32."""
        given = (Input * len(arrays))()
        for i, a in enumerate(arrays):
            place = a.ctypes.data
            given[i] = Input(i, place, a.nbytes, through, TYPES[a.dtype.name], fmt)
        assert self.lib.rknn_inputs_set(self.handle, len(arrays), given) == 0
        assert self.lib.rknn_run(self.handle, None) == 0
        numbers = (c_uint32 * 2)()
        assert self.lib.rknn_query(self.handle, 0, numbers, 8) == 0
        outputs = (Output * numbers[1])(*(Output(1, 0, i) for i in range(numbers[1])))
        assert self.lib.rknn_outputs_get(self.handle, numbers[1], outputs, None) == 0
        found = [np.frombuffer(ctypes.string_at(o.buf, o.size), np.float32) for o in outputs]
        assert self.lib.rknn_outputs_release(self.handle, numbers[1], outputs) == 0
        return found


def built(model: Path, quantized: bool = True, dataset: str = "dataset.txt", **config) -> RKNN:
    """A model that ran through Python, and was exported beside."""
    rknn = RKNN()
    rknn.config(target_platform="rk3588", **config)
    assert rknn.load_onnx(str(model)) == 0
    assert rknn.build(quantized, str(model.parent / dataset)) == 0
    assert rknn.export_rknn(str(model.with_suffix(".rknn"))) == 0
    assert rknn.init_runtime() == 0
    return rknn


@pytest.fixture(scope="module")
def pair(models_folder: Path, tmp_path_factory: pytest.TempPathFactory):
    """The classifier in int8 in Python and in C."""
    folder = tmp_path_factory.mktemp("inputs")
    models.workspace(folder)
    rknn = built(folder / "mobilenet.onnx", mean_values=[[120] * 3], std_values=[[60, 61, 62]])
    context = Context((folder / "mobilenet.rknn").read_bytes())
    yield rknn, context
    context.close()
    rknn.release()


@pytest.mark.parametrize("dtype", list(TYPES))
@pytest.mark.parametrize("fmt", [NCHW, NHWC])
def test_types_and_layouts(pair, picture: np.ndarray, dtype: str, fmt: int):
    rknn, context = pair
    given = (picture // 2).astype(dtype)
    if fmt == NCHW:
        given = np.ascontiguousarray(given.transpose(0, 3, 1, 2))
    wanted = rknn.inference([given], data_format=["nchw" if fmt == NCHW else "nhwc"])
    found = context.run(given, fmt=fmt)
    assert found[0].tobytes() == wanted[0].tobytes()


def test_pass_through_takes_what_the_npu_reads(pair):
    """int8 in NHWC, normalised: the same as its floats in Python."""
    rknn, context = pair
    attr = context.attr(NATIVE_INPUT_ATTR)
    assert attr.type == TYPES["int8"]
    assert attr.fmt == NHWC
    stored = np.random.default_rng(0).integers(-128, 128, (1, 16, 16, 3)).astype(np.int8)
    real = ((stored.astype(np.float64) - attr.zp) * attr.scale).astype(np.float32)
    wanted = rknn.inference([real.transpose(0, 3, 1, 2)], inputs_pass_through=[1])
    assert context.run(stored, through=True)[0].tobytes() == wanted[0].tobytes()


def test_several_inputs(tmp_path: Path):
    models.workspace(tmp_path)
    rknn = built(tmp_path / "pair.onnx", dataset="pairs.txt")
    context = Context(tmp_path / "pair.rknn")
    rng = np.random.default_rng(1)
    a, b = (rng.normal(0, 1, (1, 4, 8, 8)).astype(np.float32) for _ in range(2))
    wanted = rknn.inference([a, b], data_format="nchw")
    assert context.run(a, b, fmt=NCHW)[0].tobytes() == wanted[0].tobytes()
    assert context.attr(INPUT_ATTR, 1).name == b"b"
    assert context.attr(OUTPUT_ATTR).name == b"y"
    context.close()
    rknn.release()


def test_channels_in_blocks(tmp_path: Path):
    """An input of 20 channels is read in two blocks of 16, the rest is not."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], "conv")
    weights = np.random.default_rng(3).normal(0, 1, (4, 20, 1, 1))
    models.save(
        tmp_path / "wide.onnx", [node], {"x": [1, 20, 3, 5]}, {"y": [1, 4, 3, 5]}, w=weights
    )
    real = np.random.default_rng(4).normal(0, 1, (1, 20, 3, 5)).astype(np.float32)
    np.save(tmp_path / "x.npy", real)
    (tmp_path / "dataset.txt").write_text("x.npy\n")
    rknn = built(tmp_path / "wide.onnx")
    context = Context(tmp_path / "wide.rknn")
    attr = context.attr(NATIVE_INPUT_ATTR)
    assert (attr.fmt, list(attr.dims[:5])) == (NC1HWC2, [1, 2, 3, 5, 16])
    stored = np.clip(np.rint(real / attr.scale) + attr.zp, -128, 127).astype(np.int8)
    blocks = np.full((1, 32, 3, 5), 99, np.int8)
    blocks[:, :20] = stored
    blocks = np.ascontiguousarray(blocks.reshape(1, 2, 16, 3, 5).transpose(0, 1, 3, 4, 2))
    wanted = rknn.inference([real], data_format="nchw")[0]
    assert context.run(blocks, through=True)[0].tobytes() == wanted.tobytes()
    context.close()
    rknn.release()


def test_inputs_that_are_no_pictures_and_weights_beside_the_model(tmp_path: Path):
    models.workspace(tmp_path)
    rknn = built(tmp_path / "wav2vec.onnx", False, remove_weight=True)
    path = tmp_path / "wav2vec.rknn"
    first = Context(path)
    second = Context(path.read_bytes(), SHARE_WEIGHTS, share=first)
    x = np.random.default_rng(2).normal(0, 1, (1, 20, 6)).astype(np.float32)
    wanted = rknn.inference([x])[0].tobytes()
    attr = first.attr(INPUT_ATTR)
    assert (attr.fmt, attr.n_dims, attr.type) == (UNDEFINED, 3, TYPES["float16"])
    for context in (first, second):
        assert context.run(x, fmt=UNDEFINED)[0].tobytes() == wanted
        context.close()
    rknn.release()


def test_damaged_metadata_is_refused(tmp_path: Path, capfd):
    models.workspace(tmp_path)
    built(tmp_path / "mobilenet.onnx", False).release()
    package = Package.load(tmp_path / "mobilenet.rknn")
    lib, handle = ctypes.CDLL(str(BUILD / "librknnrt.so")), c_uint64()
    lib.rknn_init.argtypes = [POINTER(c_uint64), c_void_p, c_uint32, c_uint32, c_void_p]
    for text in ("{", "[]", '{"inputs": []}', '{"inputs": [{"name": 3}]}', "[" * 99, '"\\u12'):
        meta = dict(package.meta) | {"metadata": {"rknn": text}}
        data = Package.build(package.plans, isa=package.contents.isa, meta=meta)
        data.save(tmp_path / "damaged.rknn")
        path = str(tmp_path / "damaged.rknn").encode()
        assert lib.rknn_init(byref(handle), path, 0, 0, None) == -6
        assert (
            "metadata 'rknn' of the package is damaged; export it again" in capfd.readouterr().err
        )
