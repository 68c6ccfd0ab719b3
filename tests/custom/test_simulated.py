"""Simulators that stand for plug-ins: added where one is missing, gone where it is loaded."""

from __future__ import annotations

import pytest
from tests.custom.models import PLUGIN

from intaglio import custom, native
from intaglio.custom import simulated
from intaglio.errors import BadInput

OP = "sophgo.run"


def test_a_simulator_is_added_once():
    assert simulated.add()
    assert not simulated.add()
    assert native.ops()[OP].plugin.name == "sophgo"
    simulated.remove()
    assert OP not in native.ops()


def test_loading_a_plug_in_takes_it_away_until_it_is_needed():
    simulated.add()
    custom.load(PLUGIN)
    assert OP not in native.ops()
    assert simulated.add()


def test_a_plug_in_that_cannot_be_loaded_changes_nothing_for_good():
    simulated.add()
    with pytest.raises(BadInput, match="there is no such file"):
        custom.load("./missing.so")
    assert simulated.add()
