"""The real models of ../shared agree with onnxruntime, and with the runtimes of their formats."""

from __future__ import annotations

import pytest
from tests import shared_frontends, shared_models
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


OTHERS = [
    pytest.param(name, marks=[pytest.mark.xfail(strict=True, reason=m.apart)] if m.apart else [])
    for name, m in shared_frontends.MODELS.items()
]


@pytest.mark.parametrize("name", OTHERS)
def test_agrees_with_the_runtime_of_its_format(name: str) -> None:
    if name not in shared_frontends.paths():
        pytest.skip(f"there is no {name} in {shared_models.SHARED / 'models'}; set INTAGLIO_SHARED")
    row = shared_frontends.compare(name)
    if row.skipped:
        pytest.skip(row.skipped)
    assert row.ok, str(row)


def test_every_shared_model_of_other_formats_is_compared() -> None:
    if not shared_frontends.paths():
        pytest.skip(f"there is nothing in {shared_models.SHARED / 'models'}; set INTAGLIO_SHARED")
    assert set(shared_frontends.paths()) == set(shared_frontends.MODELS)
