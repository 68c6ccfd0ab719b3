"""Padding in the C API: inputs between two listed shapes give what Python's padding gives."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest
from tests.test_ranges import CONVOLUTIONS, ENCODER, R, feeds_of

import intaglio
from intaglio import native
from intaglio.package import Package
from intaglio.package import format as f
from intaglio.package.read import sections
from intaglio.package.write import assemble
from intaglio.runtime import CError, COptions, CView, Model, library

ANY_PLAN, OK, BAD_INPUT = 0xFFFFFFFF, 0, 2


class Padded:
    """A session of the C API, with functions that Python does not use."""

    def __init__(self, package: Package, external_io: int = 0):
        self.lib, self.handle, error = library(), ctypes.c_void_p(), CError()
        self.model = Model(package, True)
        options = COptions(ANY_PLAN, 1, 0, external_io, 0)
        status = self.lib.itg_session_create(
            self.model.handle, ctypes.byref(options), ctypes.byref(self.handle), ctypes.byref(error)
        )
        assert status == OK, error.words

    def close(self) -> None:
        self.lib.itg_session_destroy(self.handle)

    def call(self, name: str, *arguments: object) -> int:
        function = ctypes.CDLL(self.lib._name)[name]
        function.restype = ctypes.c_uint32
        return int(function(self.handle, *arguments))

    def words(self) -> str:
        return self.lib.itg_session_error(self.handle).decode()

    def set_shapes(self, shapes: list[tuple[int, ...]], how: str = "itg_set_padded_shapes") -> int:
        rows = ((ctypes.c_int64 * native.MAX_RANK) * max(len(shapes), 1))()
        for row, shape in zip(rows, shapes, strict=False):
            row[: len(shape)] = list(shape)
        return self.call(how, rows)

    def run(self, feeds: list[np.ndarray], outputs: int) -> list[np.ndarray]:
        assert self.set_shapes([a.shape for a in feeds]) == OK, self.words()
        for i, a in enumerate(feeds):
            data = np.ascontiguousarray(a)
            size = ctypes.c_size_t(data.nbytes)
            status = self.call("itg_set_input", i, ctypes.c_void_p(data.ctypes.data), size)
            assert status == OK, self.words()
        results = []
        for _ in range(2):  # nothing is padded twice
            assert self.call("itg_run") == OK, self.words()
            results = [self.output(i) for i in range(outputs)]
        return results

    def output(self, i: int) -> np.ndarray:
        view = CView()
        assert self.call("itg_get_output", i, ctypes.byref(view)) == OK
        shape = tuple(view.shape[: view.rank])
        raw = ctypes.string_at(view.data, view.bytes)
        return np.frombuffer(raw, np.float32).reshape(shape)


@pytest.fixture(scope="module")
def tokens() -> Package:
    return intaglio.compile(ENCODER, dims={"batch": 1, "seq": [8, 32]}, outputs=["y"])


@pytest.fixture
def session(tokens: Package) -> Iterator[Padded]:
    found = Padded(tokens)
    yield found
    found.close()


def test_tokens_between_two_lengths(tokens: Package, session: Padded):
    with intaglio.open(tokens) as python:
        for seq in (3, 8, 20, 32, 9, 31, 20, 1):
            feeds = feeds_of(ENCODER, {"batch": 1, "seq": seq})
            feeds["mask"][:] = 1
            (got,) = session.run([feeds["ids"], feeds["mask"]], 1)
            np.testing.assert_array_equal(got, python.run(feeds)["y"])


def test_images_of_a_batch():
    package = intaglio.compile(CONVOLUTIONS, dims={"n": [1, 4], "h": 8, "w": 8})
    session = Padded(package)
    with intaglio.open(package) as python:
        for n in (3, 1, 2, 4, 3):
            x = R.standard_normal((n, 3, 8, 8)).astype(np.float32)
            want = list(python.run({"x": x}).values())
            for a, b in zip(session.run([x], len(want)), want, strict=True):
                np.testing.assert_array_equal(a, b)
    session.close()


def test_refusals(session: Padded, tokens: Package):
    assert session.set_shapes([(1, 33), (1, 33)]) == BAD_INPUT
    assert "cannot have the shape 1x33: it is not in the package's list" in session.words()
    assert session.set_shapes([(2, 20), (2, 20)]) == BAD_INPUT
    assert session.set_shapes([(1, -1), (1, -1)]) == BAD_INPUT
    assert session.set_shapes([(1, 20), (1, 20)], "itg_set_shapes") == BAD_INPUT
    assert session.set_shapes([(1, 20), (1, 20)]) == OK
    ids = np.zeros((1, 32), np.int64)
    at, size = ctypes.c_void_p(ids.ctypes.data), ctypes.c_size_t
    assert session.call("itg_set_input", 0, at, size(ids.nbytes)) == BAD_INPUT
    assert "takes 160 bytes, the buffer has 256" in session.words()
    assert session.call("itg_bind_input", 0, at, size(160)) == BAD_INPUT
    assert "is padded, so it is copied: use itg_set_input" in session.words()
    view = CView()
    assert session.call("itg_get_input", 0, ctypes.byref(view)) == OK
    assert tuple(view.shape[:2]) == (1, 20)
    assert session.set_shapes([(1, 32), (1, 32)]) == OK  # padding ends
    assert session.call("itg_set_input", 0, at, size(ids.nbytes)) == OK
    outside = Padded(tokens, external_io=1)
    assert outside.set_shapes([(1, 20), (1, 20)]) == BAD_INPUT
    assert "needs the session's own memory" in outside.words()
    assert outside.set_shapes([(1, 8), (1, 8)]) == OK
    outside.close()


def test_models_that_must_not_be_padded():
    package = intaglio.compile(CONVOLUTIONS, dims={"n": 1, "h": [8, 16], "w": 8})
    assert "PADS" not in sections(package.bytes)[0]
    session = Padded(package)
    assert session.set_shapes([(1, 3, 12, 8)]) == BAD_INPUT
    assert "pad the inputs to the next larger one where that is right" in session.words()
    session.close()


@pytest.mark.parametrize(
    "row", [(1, 1, 0, 1), (0, 3, 0, 1), (0, 1, 9, 1), (0, 1, 0, 2), (0, 2, 0, 1)]
)
def test_wrong_rows_are_refused(tokens: Package, row: tuple[int, ...]):
    found, bits = sections(tokens.bytes)
    assert np.frombuffer(found["PADS"], f.PAD).tolist() == [(0, 1, 0, 1)]
    changed = {**found, "PADS": np.array([row], f.PAD).tobytes()}
    with pytest.raises(intaglio.BadInput, match="does not follow its input"):
        intaglio.open(assemble(changed, bits))
