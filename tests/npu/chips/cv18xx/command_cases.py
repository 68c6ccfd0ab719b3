"""All kinds of random single commands, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from tests.npu.chips.cv18xx import single_commands as single
from tests.npu.chips.cv18xx.single_transfers import KINDS, transfer

from intaglio.ir import Array
from intaglio.npu.chips.cv18xx.commands import CHIPS
from intaglio.npu.chips.cv18xx.cvimodel import Cvimodel

Maker = Callable[[np.random.Generator, int], single.Case]
MAKERS: dict[str, Maker] = {
    "conv": partial(single.convolution, depthwise=False, sums=0),
    "conv last sum": partial(single.convolution, depthwise=False, sums=1),
    "conv first sum": partial(single.convolution, depthwise=False, sums=2),
    "conv middle sum": partial(single.convolution, depthwise=False, sums=3),
    "conv bf16": single.convolution_of_floats,
    "depthwise": partial(single.convolution, depthwise=True, sums=0),
    "pool": single.pool,
    "look up": single.look_up,
    **{f"matmul {sums}": partial(single.matmul, sums=sums) for sums in range(4)},
    **{f"eltwise {kind}": partial(single.eltwise, kind=kind) for kind in range(12)},
}
NAMES = [*MAKERS, *KINDS]


def case(name: str, chip: str, seed: int) -> tuple[Cvimodel, Array]:
    """A model with one random command, and its input."""
    rng = np.random.default_rng(seed)
    made = MAKERS[name](rng, CHIPS[chip].lanes) if name in MAKERS else transfer(rng, chip, name)
    commands, prepare = made
    x = single.memory(seed, chip)
    prepare(x)
    return single.model(commands, chip), x
