"""Samples from array files, lists and Python objects; errors for data that does not fit."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from intaglio.errors import BadFile, BadInput
from intaglio.ir import Type
from intaglio.quant.samples import dataset
from intaglio.quant.samples.dataset import Samples, samples

IMAGE = [("x", Type("f32", (1, 3, 4, 6)))]
VECTOR = [("x", Type("f32", (1, 5)))]
TWO = [("a", Type("f32", (1, 3, 4, 6))), ("b", Type("i64", (1, 2)))]
RNG = np.random.default_rng(0)


def quiet(source: Any, inputs: Any = VECTOR, **options: Any) -> Samples:
    return samples(source, inputs, warn=lambda words: None, **options)


def told(source: Any, inputs: Any = VECTOR, **options: Any) -> list[str]:
    said: list[str] = []
    samples(source, inputs, warn=said.append, **options)
    return said


def picture(path: Path, height: int = 4, width: int = 6, mode: str = "RGB") -> np.ndarray:
    shape = (height, width) if mode == "L" else (height, width, len(mode))
    pixels = RNG.integers(0, 256, shape, np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return pixels


# ---- array files and lists -----------------------------------------------------------------------
def test_npy_is_one_sample_or_many(tmp_path: Path):
    rows = RNG.random((4, 5), np.float32)
    for given in (rows, rows[:, None]):
        np.save(tmp_path / "x.npy", given)
        got = quiet(tmp_path / "x.npy")
        assert [s["x"].shape for s in got] == [(1, 5)] * 4
        np.testing.assert_array_equal(got[2]["x"][0], rows[2])
        assert got.where(2).endswith("x.npy[2]")
    for given in (rows[0], rows[:1]):
        np.save(tmp_path / "x.npy", given)
        (sample,) = quiet(tmp_path / "x.npy")
        np.testing.assert_array_equal(sample["x"][0], rows[0])


def test_npz_has_the_inputs_names(tmp_path: Path):
    a, b = RNG.random((3, 1, 3, 4, 6), np.float32), np.arange(6).reshape(3, 2)
    np.savez(tmp_path / "all.npz", b=b, a=a, labels=np.arange(3))
    got = quiet(tmp_path / "all.npz", TWO)
    assert list(got[0]) == ["a", "b"]
    np.testing.assert_array_equal(got[1]["b"], [[2, 3]])
    assert "'labels' is no input" in told(tmp_path / "all.npz", TWO)[0]
    np.savez(tmp_path / "all.npz", arr_0=a[:, 0, 0, 0, :5])
    assert len(quiet(tmp_path / "all.npz")) == 3


def test_a_dict_must_name_the_only_input():
    row, image = np.ones((1, 5), np.float32), [("image", Type("f32", (1, 5)))]
    assert len(quiet([{"image": row}], image)) == 1
    for given in ([{"imag": row}], {"imag": row}):
        with pytest.raises(BadInput, match="'image' is missing; did you mean 'image'"):
            quiet(given, image)
    with pytest.raises(BadInput, match="has 'zzz'; the model's inputs are 'image': 'image' is"):
        quiet([{"zzz": row}], image)


def test_a_folder_of_arrays(tmp_path: Path):
    rows = RNG.random((3, 5)).astype(np.float64)
    for i, row in enumerate(rows):
        np.save(tmp_path / f"{i}.npy", row)
    got = quiet(tmp_path)
    np.testing.assert_array_equal(
        np.concatenate([s["x"] for s in got]), rows.astype(np.float32)
    )  # doubles become the input's floats
    folder = tmp_path / "npz"
    for i in range(2):
        folder.mkdir(exist_ok=True)
        np.savez(folder / f"{i}.npz", a=np.full((3, 4, 6), i, np.float32), b=np.int32([[i, i]]))
    got = quiet(folder, TWO)
    assert [int(s["b"][0, 0]) for s in got] == [0, 1]
    assert got[0]["b"].dtype == np.int64


def test_a_list_names_a_file_per_input(tmp_path: Path):
    picture(tmp_path / "img/0.png")
    picture(tmp_path / "img/second one.png")
    np.save(tmp_path / "0.npy", np.int64([1, 2]))
    np.save(tmp_path / "1.npy", np.int64([3, 4]))
    (tmp_path / "list.txt").write_text(
        "# picture  numbers\n\nimg/0.png 0.npy   # the first\n'img/second one.png' 1.npy\r\n"
    )
    got = quiet(tmp_path / "list.txt", TWO, mean=[[1, 2, 3], None])
    assert len(got) == 2
    np.testing.assert_array_equal(got[1]["b"], [[3, 4]])
    assert got[0]["a"].shape == (1, 3, 4, 6)
    (tmp_path / "one.txt").write_text(f"img/second one.png\n{tmp_path}/img/0.png\n")
    assert len(quiet(tmp_path / "one.txt", IMAGE)) == 2


# ---- Python --------------------------------------------------------------------------------------
def test_arrays_tuples_and_dicts():
    rows = RNG.random((4, 5), np.float32)
    for source in (
        rows,
        list(rows),
        [(r,) for r in rows],
        [{"x": r} for r in rows],
        {"x": rows},
        [rows[:3], rows[3:]],
        [r.tolist() for r in rows],
    ):
        got = quiet(source)
        assert len(got) == 4
        np.testing.assert_array_equal(np.concatenate([s["x"] for s in got]), rows)
    a, b = np.zeros((3, 4, 6), np.float32), np.int64([1, 2])
    assert quiet([(a, b), {"b": b, "a": a}], TWO)[1]["a"].shape == (1, 3, 4, 6)


def test_pathlib_and_names_in_a_list(tmp_path: Path):
    picture(tmp_path / "0.png")
    np.save(tmp_path / "0.npy", np.int64([1, 2]))
    got = quiet([(tmp_path / "0.png", str(tmp_path / "0.npy"))], TWO)
    np.testing.assert_array_equal(got[0]["b"], [[1, 2]])
    assert len(quiet([tmp_path / "0.png"], IMAGE)) == 1


def test_a_generator_is_read_once_and_kept():
    walked = []

    def rows() -> Iterator[np.ndarray]:
        for i in range(4):
            walked.append(i)
            yield np.full(5, i, np.float32)

    got = quiet(rows())
    first = [s["x"].tolist() for s in got]
    assert first == [s["x"].tolist() for s in got] == [[[i] * 5] for i in range(4)]
    assert walked == [0, 1, 2, 3]
    assert len(got) == 4
    got[0]["x"][:] = 9  # belongs to who asked
    assert (got[0]["x"] == 0).all()


def test_an_endless_generator_is_cut():
    def rows() -> Iterator[dict[str, np.ndarray]]:
        while True:
            yield {"x": np.zeros(5, np.float32)}

    assert len(quiet(rows(), limit=3)) == 3
    assert "the first 100 are used" in told(rows())[0]


def test_much_of_a_generator_goes_to_a_file(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dataset, "IN_MEMORY", 50)
    made: list[Any] = []
    real = tempfile.SpooledTemporaryFile

    def noted(*args: Any) -> Any:
        made.append(real(*args))
        return made[-1]

    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", noted)
    got = quiet(np.full(5, i, np.float32) for i in range(9))
    assert made[0]._rolled
    assert [int(s["x"][0, 0]) for s in got] == list(range(9))


def test_what_may_shuffle_is_walked_once():
    class Loader:
        walks = 0

        def __iter__(self) -> Iterator[np.ndarray]:
            self.walks += 1
            yield RNG.random((2, 5)).astype(np.float32)

    loader = Loader()
    got = quiet(loader)
    assert [s["x"].tolist() for s in got] == [s["x"].tolist() for s in got]
    assert (len(got), loader.walks) == (2, 1)


def test_samples_pass_through():
    got = quiet(RNG.random((4, 5), np.float32))
    assert samples(got, VECTOR) is got
    few = got.take(2)
    assert [s["x"].tolist() for s in few] == [got[0]["x"].tolist(), got[3]["x"].tolist()]
    assert [s["x"].tolist() for s in got[1:3]] == [got[1]["x"].tolist(), got[2]["x"].tolist()]
    assert got[-1]["x"].tolist() == got[3]["x"].tolist()


# ---- batches and numbers -------------------------------------------------------------------------
def test_samples_fill_the_batch():
    batch = [("x", Type("f32", (2, 5))), ("n", Type("i64", (1,)))]
    rows = [{"x": np.full(5, i, np.float32), "n": np.int64([7])} for i in range(3)]
    got = quiet(rows, batch)
    assert [s["x"][:, 0].tolist() for s in got] == [[0, 1], [2, 0]]
    assert [s["n"].tolist() for s in got] == [[7], [7]]
    assert "stacked by 2" in told(rows, batch)[0]
    assert len(quiet(rows, batch, limit=1)) == 1
    whole = quiet(np.zeros((3, 2, 5), np.float32), batch[:1])
    assert len(whole) == 3
    assert [s["x"][:, 0].tolist() for s in quiet(iter(rows), batch)] == [[0, 1], [2, 0]]


def test_more_than_helps_is_thinned_evenly():
    rows = np.repeat(np.arange(1000, dtype=np.float32)[:, None], 5, 1)
    (words,) = told(rows)
    assert "1000 samples are given; 100 of them, evenly spread, are used" in words
    picked = [int(s["x"][0, 0]) for s in quiet(rows)]
    assert [p // 10 for p in picked] == list(range(100))
    assert picked == [int(s["x"][0, 0]) for s in quiet(rows)]
    assert picked != [int(s["x"][0, 0]) for s in quiet(rows, seed=1)]
    assert not told(rows, limit=1000)
    assert not told(rows, limit=10)
    assert len(quiet(rows, limit=1000)) == 1000
    assert len(quiet(rows, limit=2000)) == 1000


def test_says_what_may_be_wrong(tmp_path: Path):
    picture(tmp_path / "a.png")
    assert "(0 to 255) because neither mean nor std" in told(tmp_path, IMAGE)[0]
    assert not told(tmp_path, IMAGE, std=255)
    floats = np.zeros((2, 3, 4, 6), np.float32)
    assert "arrays of floats stay unchanged" in told(floats, IMAGE, mean=1)[0]
    with pytest.warns(UserWarning, match="0 to 255"):
        samples(tmp_path, IMAGE)


# ---- bad input -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("source", "inputs", "options", "words"),
    [
        (None, VECTOR, {}, "no calibration data is given"),
        ([], VECTOR, {}, "the data: no samples"),
        (iter([]), VECTOR, {}, "the data gives no samples"),
        (np.zeros((0, 5), np.float32), VECTOR, {}, "the data: no samples"),
        (7, VECTOR, {}, "data is int; give a path"),
        ("nowhere", VECTOR, {}, "nowhere: no such file or folder"),
        (np.zeros((4, 7), np.float32), VECTOR, {}, "input 'x' has shape (1, 5), the sample has"),
        ([np.zeros((1, 7))], VECTOR, {}, "sample 0: input 'x' has shape (1, 5), the sample has (1"),
        ([np.zeros(5, np.complex64)], VECTOR, {}, "the sample is complex64; give numbers"),
        ([np.array(["a"] * 5)], VECTOR, {}, "give numbers"),
        ([object()], VECTOR, {}, "sample 0: object is no array"),
        ([{"y": 1, "z": 2}], VECTOR, {}, "sample 0: has 'y', 'z'; the model's inputs are 'x': 'x'"),
        ([{"a": 1}], TWO, {}, "'b' is missing"),
        ([(np.zeros(5), 3)], VECTOR, {}, "2 arrays, the model's inputs are 1: x; give the inputs"),
        ([np.zeros(5)], TWO, {}, "the model has 2 inputs (a, b)"),
        ([(np.zeros((3, 4, 6)), np.zeros(2))], TWO, {}, "use .astype('int64')"),
        ([(np.zeros((3, 4, 6)), np.uint64([1, 2**63]))], TWO, {}, "not all of its numbers fit"),
        ({"a": np.zeros((2, 3, 4, 6)), "b": np.zeros((3, 2), int)}, TWO, {}, "'a' 2, 'b' 3"),
        ([np.zeros(5)], VECTOR, {"limit": 0}, "limit is 0"),
        ([np.zeros(5)], VECTOR, {"seed": -1}, "seed is -1"),
        ([np.zeros(5)], VECTOR, {"pad_value": -3}, "pad_value is -3; a pixel is from 0 to 255"),
        ([np.zeros(5)], VECTOR, {"resize": "squash"}, "resize is 'squash'; it is one of stretch"),
        ([np.zeros(5)], VECTOR, {"color": "yuv"}, "color is 'yuv'"),
        ([np.zeros(5)], VECTOR, {"layout": "chw"}, "layout is 'chw'"),
        ([np.zeros(5)], VECTOR, {"mean": 1}, "mean is given for input 'x' f32[1x5], which "),
        ([], IMAGE, {"mean": [1, 2, 3, 4]}, "mean has 4 numbers, input 'x' has 3 channels"),
        ([], IMAGE, {"std": [1, 0, 1]}, "std is 1, 0, 1; it must be finite and above 0"),
        ([], IMAGE, {"mean": "red"}, "mean is 'red'; give numbers"),
        ([], IMAGE, {"mean": [[1, 2, 3], [1, 2, 3]]}, "mean has 2 lists; one per input is needed"),
        ([], IMAGE, {"std": {"y": 1}}, "std is given for 'y'; inputs are x"),
        ([], TWO, {"std": {"b": 1}}, "std is given for input 'b' i64[1x2], which is not"),
        ([np.zeros(5)], [], {}, "the model has no inputs"),
    ],
)
def test_refuses_in_words(source: Any, inputs: Any, options: dict[str, Any], words: str):
    with pytest.raises(BadInput) as caught:
        list(quiet(source, inputs, **options))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_names_the_sample_that_is_not_finite(bad: float, tmp_path: Path):
    rows = np.zeros((3, 5), np.float32)
    rows[1, 2] = bad
    np.save(tmp_path / "x.npy", rows)
    with pytest.raises(BadInput) as caught:
        list(quiet(tmp_path / "x.npy"))
    assert f"x.npy[1]: input 'x' holds {bad} at [2]" in str(caught.value)
    with pytest.raises(BadInput, match=r"sample 1: input 'x' holds"):
        quiet(iter(rows))
    big = [np.full(5, 1e6, np.float32)]
    with pytest.raises(BadInput, match="holds inf"):  # more than f16 holds
        list(quiet(big, [("x", Type("f16", (1, 5)))]))


def test_bad_files_are_named(tmp_path: Path):
    def refused(words: str, path: Path = tmp_path, inputs: Any = IMAGE) -> None:
        with pytest.raises(BadInput) as caught:
            list(quiet(path, inputs))
        assert words in str(caught.value)

    refused("no pictures (.jpg, .jpeg, .png, .bmp, .webp), .npy or .npz in it; it holds nothing")
    (tmp_path / "a.tif").touch()
    (tmp_path / "b.tif").touch()
    refused("it holds 2 .tif")
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8\xff no picture")
    refused(f"{tmp_path}/a.jpg: not a readable picture")
    picture(tmp_path / "a.jpg", 64, 64)
    (tmp_path / "a.jpg").write_bytes((tmp_path / "a.jpg").read_bytes()[:900])
    refused(f"{tmp_path}/a.jpg: not a readable picture (image file is truncated")
    np.save(tmp_path / "a.npy", 1)
    refused("holds pictures and arrays")
    (tmp_path / "a.npy").write_bytes(b"no array")
    refused("a.npy: not an array that numpy can read", tmp_path / "a.npy")
    (tmp_path / "a.npz").write_bytes(b"no zip")
    refused("a.npz: not an .npz that numpy can read", tmp_path / "a.npz")
    (tmp_path / "a.npz").write_bytes(b"PK\3\4 cut off")
    refused("a.npz: not an .npz that numpy can read", tmp_path / "a.npz")
    np.save(tmp_path / "o.npy", np.array([{}]), allow_pickle=True)
    refused("o.npy: not an array", tmp_path / "o.npy")
    lines = tmp_path / "list.txt"
    for text, words in (
        ("", "list.txt: lists no files"),
        ("# only words\n", "list.txt: lists no files"),
        ("\nmissing.png\n", "list.txt, line 2: " + str(tmp_path / "missing.png") + ": no such"),
        ("a.tif\n", "line 1: a.tif: not one of .jpg"),
        ("a.jpg a.jpg\n", "line 1: 2 files, the model's inputs are 1: x"),
    ):
        lines.write_text(text)
        refused(words, lines)
    lines.write_bytes(b"\x89PNG\xff\xfe")
    refused("neither a text list nor one of", lines)
    picture(tmp_path / "good.png")
    refused("the model has 2 inputs (a, b); give an .npz", tmp_path / "good.png", TWO)
    with pytest.raises(BadFile, match="no such file or folder"):
        quiet(tmp_path / "none")
