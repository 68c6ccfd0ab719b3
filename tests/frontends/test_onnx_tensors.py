"""Stored tensors: every element type in every encoding, external files, and invalid ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.frontends.onnx_text import model

import intaglio
from intaglio import dtypes
from intaglio.errors import BadFile, BadInput, Unsupported
from intaglio.frontends.onnx import load_onnx
from intaglio.frontends.onnx.tensors import ELEMENTS, to_array

rng = np.random.default_rng(0)


def sample(name: str, shape: tuple[int, ...]) -> np.ndarray:
    row = dtypes.TABLE[name]
    if row.kind == "f":
        return rng.uniform(0.5, 4, shape).astype(row.numpy)
    if row.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    low, high = dtypes.limits(name)
    low, high = max(low, -(2**40)), min(high, 2**40)
    return rng.integers(low, high + 1, shape).astype(row.numpy)


@pytest.mark.parametrize("code", ELEMENTS)
@pytest.mark.parametrize("shape", [(), (0, 2), (1,), (3, 5)])
def test_every_element_type_raw_and_typed(code: int, shape: tuple[int, ...]) -> None:
    want = sample(ELEMENTS[code][0], shape)
    raw = numpy_helper.from_array(want, "t")
    assert raw.data_type == code
    assert raw.HasField("raw_data")
    for tensor in (raw, _typed(raw, want)):
        got = to_array(tensor, None)
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        assert got.tobytes() == want.tobytes()


def _typed(raw: onnx.TensorProto, want: np.ndarray) -> onnx.TensorProto:
    """The same tensor in the typed field of its element type."""
    tensor = onnx.TensorProto(data_type=raw.data_type, dims=raw.dims, name="t")
    name, field = ELEMENTS[raw.data_type]
    row = dtypes.TABLE[name]
    if row.bits < 8 and row.kind != "b":
        items = list(raw.raw_data)
    elif row.kind == "f" and field == "int32_data":
        items = want.reshape(-1).view(f"u{row.numpy.itemsize}").tolist()
    else:
        items = (want.astype(np.uint8) if name == "bool" else want).reshape(-1).tolist()
    getattr(tensor, field).extend(items)
    return tensor


def test_raw_bytes_are_viewed_and_external_files_mapped(tmp_path: Path) -> None:
    tensor = numpy_helper.from_array(np.ones((256, 256), np.float32), "w")
    assert not to_array(tensor, None).flags.owndata
    m = external(tmp_path, np.ones((256, 256), np.float32))
    assert not to_array(m.graph.initializer[0], tmp_path).flags.owndata


def test_odd_bools_are_normalised() -> None:
    tensor = TensorProto(data_type=TensorProto.BOOL, dims=[3], raw_data=bytes([0, 2, 255]))
    assert to_array(tensor, None).view(np.uint8).tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("tensor", "error", "words"),
    [
        (TensorProto(data_type=1, dims=[3], raw_data=b"1234"), BadFile, "4 bytes.*takes 12"),
        (TensorProto(data_type=1, dims=[3], float_data=[1]), BadFile, "1 items in float_data"),
        (TensorProto(data_type=1, dims=[-1], float_data=[1]), BadFile, "negative dimension"),
        (TensorProto(data_type=1, dims=[1 << 62, 1 << 62]), BadInput, "TiB"),
        (TensorProto(data_type=1, dims=[10**15]), BadInput, "TiB"),
        (TensorProto(data_type=8, dims=[1], string_data=[b"a"]), Unsupported, "strings"),
        (TensorProto(data_type=14, dims=[1], raw_data=b"12345678"), Unsupported, "complex"),
        (TensorProto(data_type=99, dims=[1], raw_data=b"1"), Unsupported, "element type 99"),
        (TensorProto(dims=[1], raw_data=b"1"), Unsupported, "no element type"),
    ],
)
def test_tensors_that_lie(tensor: TensorProto, error: type, words: str) -> None:
    tensor.name = "w"
    with pytest.raises(error, match=f"^onnx: tensor 'w' .*{words}") as e:
        to_array(tensor, None)
    assert "\n" not in str(e.value)


# ---- external data -----------------------------------------------------------------------------
def external(folder: Path, data: np.ndarray, **info: object) -> onnx.ModelProto:
    """A model with one weight in weights.bin at offset 6, described by `info`."""
    (folder / "weights.bin").write_bytes(b"before" + data.tobytes() + b"after")
    m = model("(float[1] x) => (float[1] y) { y = Add(x, w) }")
    w = m.graph.initializer.add(name="w", data_type=1, dims=data.shape, data_location=1)
    for key, value in {
        "location": "weights.bin",
        "offset": 6,
        "length": data.nbytes,
        **info,
    }.items():
        if value is not None:
            w.external_data.add(key=key, value=str(value))
    onnx.save(m, folder / "model.onnx")
    return m


ONE = np.array([41], np.float32)


def test_external_data(tmp_path: Path) -> None:
    for info in ({}, {"length": None}, {"location": "./weights.bin"}):
        external(tmp_path, ONE, **info)
        g = intaglio.load(tmp_path / "model.onnx")
        assert intaglio.interpret(g, {"x": np.ones(1, np.float32)})["y"].tolist() == [42]


def test_external_data_beyond_two_gigabytes(tmp_path: Path) -> None:
    external(tmp_path, ONE, offset=(3 << 30) + 4)
    with (tmp_path / "weights.bin").open("r+b") as f:  # a sparse file takes no disk space
        f.seek((3 << 30) + 4)
        f.write(ONE.tobytes())
    g = intaglio.load(tmp_path / "model.onnx")
    assert intaglio.interpret(g, {"x": np.ones(1, np.float32)})["y"].tolist() == [42]


@pytest.mark.parametrize(
    ("info", "words"),
    [
        ({"location": "../weights.bin"}, "inside the model's folder"),
        ({"location": "sub/../../weights.bin"}, "inside the model's folder"),
        ({"location": "/etc/hostname"}, "inside the model's folder"),
        ({"location": "..\\weights.bin"}, "inside the model's folder"),
        ({"location": ""}, "inside the model's folder"),
        ({"location": "."}, "inside the model's folder"),
        ({"location": "link"}, "inside the model's folder"),
        ({"location": "linked_folder/weights.bin"}, "inside the model's folder"),
        ({"location": "none.bin"}, "needs the external file 'none.bin': no such file"),
        ({"offset": 1000}, "bytes 1000..1004.*has 15"),
        ({"offset": -4}, "bytes -4..0"),
        ({"offset": 1 << 70}, "truncated"),
        ({"offset": "x"}, "malformed"),
        ({"length": 5}, "has 5 external bytes; its shape takes 4"),
        ({"length": -1}, "has -1 external"),
    ],
)
def test_external_data_that_lies(tmp_path: Path, info: dict, words: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "weights.bin").write_bytes(b"secret")
    (folder / "link").symlink_to(tmp_path / "weights.bin")
    (folder / "linked_folder").symlink_to(tmp_path)
    external(folder, ONE, **info)
    with pytest.raises(BadFile, match=words) as e:
        intaglio.load(folder / "model.onnx")
    assert "\n" not in str(e.value)


def test_external_data_needs_a_path(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="given as bytes; load it from its path"):
        load_onnx(external(tmp_path, ONE).SerializeToString())


def test_sparse_tensors_that_lie() -> None:
    m = model("(float[2,3] x) => (float[2,3] y) { y = Add(x, s) }")
    for indices, dims, words in [
        ([1, 6], [2], "outside"),
        ([-1, 2], [2], "outside"),
        ([0, 1, 1, 3], [2, 2], "outside"),
        ([1, 2, 3], [3], "indices of shape"),
    ]:
        del m.graph.sparse_initializer[:]
        m.graph.sparse_initializer.append(
            helper.make_sparse_tensor(
                numpy_helper.from_array(np.ones(2, np.float32), "s"),
                helper.make_tensor("", TensorProto.INT64, dims, indices),
                [2, 3],
            )
        )
        with pytest.raises(BadFile, match=words):
            load_onnx(m)
