"""What mutated files of tpu-mlir hold: refused in words, without a crash."""

import numpy as np
import pytest

from intaglio.errors import RunError
from intaglio.npu.chips.cv18xx import commands, cpu_routines, native_machine
from intaglio.npu.chips.cv18xx.fields import TDMA, TIU


@pytest.mark.parametrize("axis", ["x", "y"])
def test_windows_that_do_not_move(axis):
    values = TIU.resets | {"tsk_typ": 1, "tsk_eu_typ": 0, f"conv_op_{axis}_str": 0}
    row = np.array([[values[name] for name in TIU.by_name]], np.uint32)
    none = np.zeros((0, len(TDMA.by_name)), np.uint32)
    stream = native_machine.Stream(np.ones(1, bool), row, none)
    with pytest.raises(RunError, match=r"pool or depthwise.*the windows do not move"):
        native_machine.execute(stream, commands.find_chip("cv181x"), [])


def test_a_number_without_axes_is_quantised():
    x = [np.asarray(np.float32(2.5)), np.asarray(np.float32(np.nan))]
    made = [cpu_routines.quantize({"scale": 2.0}, [v], "i8") for v in x]
    assert [int(v) for v in made] == [5, 0]


def test_inputs_are_quantised_with_halves_away_from_zero():
    """As Sophgo's runtime does: seen on pictures whose products with the factor are halves."""
    x = np.array([0.25, 0.75, 1.25, -0.25, -0.75, -1.25, 0.2, -0.2, 63.9, -90, np.inf, -np.inf])
    (made,) = [cpu_routines.quantize({"scale": 2.0}, [x.astype(np.float32)], "i8")]
    assert made.tolist() == [1, 2, 3, -1, -2, -3, 0, 0, 127, -128, 127, -128]
