"""Facades run in a folder of their own, with the vendors' names installed for each test."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.compat import models

from intaglio.compat import aliases
from intaglio.compat.rknn.api import RKNN

pytest.importorskip("cv2")


@pytest.fixture(scope="session")
def models_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    models.workspace(folder)
    return folder


@pytest.fixture
def folder(models_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the models and data, which is the current folder."""
    shutil.copytree(models_folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def names() -> Iterator[None]:
    """`import rknn` works within the test."""
    path, argv = list(sys.path), list(sys.argv)
    aliases.install()
    yield
    aliases.uninstall()
    sys.path[:], sys.argv[:] = path, argv


@pytest.fixture(scope="module")
def int8(models_folder: Path) -> Iterator[RKNN]:
    """The classifier, quantised for rk3588 and ready to run; tests do not change it."""
    rknn = RKNN()
    assert (
        rknn.config(mean_values=[[128] * 3], std_values=[[128] * 3], target_platform="rk3588") == 0
    )
    assert rknn.load_onnx(str(models_folder / "mobilenet.onnx")) == 0
    assert rknn.build(do_quantization=True, dataset=str(models_folder / "dataset.txt")) == 0
    assert rknn.init_runtime() == 0
    yield rknn
    rknn.release()


@pytest.fixture
def picture(models_folder: Path) -> np.ndarray:
    """images/0.png as RGB [1, 16, 16, 3]."""
    import cv2

    found = cv2.imread(os.fspath(models_folder / "images/0.png"))
    return cv2.cvtColor(found, cv2.COLOR_BGR2RGB)[None]
