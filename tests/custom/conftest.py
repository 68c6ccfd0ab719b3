"""Custom operators that a test registers are gone after it."""

from __future__ import annotations

import pytest

from intaglio import custom, native
from intaglio.custom import table
from intaglio.ops.registry import CUSTOM_NAMES, REGISTRY


@pytest.fixture(autouse=True)
def no_custom_operators():
    before = set(native.ops())
    yield
    for name in list(table.CLASSES):
        custom.unregister(name)
    for name in {op.native_op.plugin.name for op in table.PLUGGED.values()}:
        custom.unregister(name)
    assert set(native.ops()) == before
    assert not [op.name for op in REGISTRY.values() if op.custom]
    assert not CUSTOM_NAMES
    assert not custom.registered()
