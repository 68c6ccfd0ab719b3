"""The real models of ../shared agree with onnxruntime."""

from __future__ import annotations

import pytest
from tests import shared_models
from tests.onnx_conformance import missing

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("engine", ["interpreter", "native"])
@pytest.mark.parametrize("name", shared_models.MODELS)
def test_agrees_with_onnxruntime(name: str, engine: str) -> None:
    if why := shared_models.absent() or missing(engine):
        pytest.skip(why)
    row = shared_models.compare(name, engine)
    assert row.ok, str(row)


def test_every_shared_model_is_compared() -> None:
    if why := shared_models.absent():
        pytest.skip(why)
    assert set(shared_models.paths()) == set(shared_models.MODELS)
