"""Custom operators that a test registers are gone after it."""

from __future__ import annotations

import pytest
from tests.custom.models import forget_all

from intaglio import custom, native
from intaglio.custom import simulated
from intaglio.ops.registry import CUSTOM_NAMES, REGISTRY


@pytest.fixture(autouse=True)
def no_custom_operators():
    simulated.remove()  # they come when a plug-in is missing
    before = set(native.ops())
    yield
    forget_all()
    simulated.remove()
    assert set(native.ops()) == before
    assert not [op.name for op in REGISTRY.values() if op.custom]
    assert not CUSTOM_NAMES
    assert not custom.registered()
