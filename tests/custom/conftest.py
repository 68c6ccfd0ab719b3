"""Custom operators that a test registers are gone after it."""

from __future__ import annotations

import pytest
from tests.custom.models import forget_all

from intaglio import custom, native
from intaglio.ops.registry import CUSTOM_NAMES, REGISTRY


@pytest.fixture(autouse=True)
def no_custom_operators():
    before = set(native.ops())
    yield
    forget_all()
    assert set(native.ops()) == before
    assert not [op.name for op in REGISTRY.values() if op.custom]
    assert not CUSTOM_NAMES
    assert not custom.registered()
