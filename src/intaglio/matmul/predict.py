"""The predicted time of a matrix product on a chip, from the program that computes it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.ir import Graph, Type, Value, constant
from intaglio.matmul.spec import Spec
from intaglio.npu import ops as npu
from intaglio.npu.compile import Compiled, build
from intaglio.npu.predict.cycles import constants, costs
from intaglio.npu.predict.element_types import as_bytes
from intaglio.npu.predict.timeline import timeline
from intaglio.targets.chip import Chip


@dataclass(frozen=True)
class Cost:
    """The predicted cost of one matrix product on one chip."""

    chip: str
    m: int
    k: int
    n: int
    cores: int
    milliseconds: float
    cycles: float  # of the whole program
    npu_cycles: float  # of the units, summed over all cores
    ddr_cycles: float
    bytes: int  # to and from DDR
    mac_use: float  # share of the peak MAC rate of these cores
    bound: str  # compute, bandwidth or launch

    @property
    def tops(self) -> float:
        """10^12 operations per second; a multiply-accumulate counts as two."""
        return 2e-9 * self.m * self.k * self.n / self.milliseconds

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"tops": self.tops}


def cost(s: Spec, m: int, cores: int = 1) -> Cost:
    """The predicted cost of m rows, without layout conversions, which run on the CPU."""
    assert s.chip is not None
    s.rows(m)
    kind, other, result = s.types
    seen = _unit(s, s.chip, kind)
    size = dtypes.TABLE[kind].bits / 8
    wide = {1: "i8", 2: "i16", 4: "i32"}[int(dtypes.TABLE[result].bits / 8 / size)]
    made = fastest([_body(s, m, wide, width) for width in s.widths(m)], seen, cores)[1]
    needs = costs(made.program, seen)
    # narrower weights are fewer bytes to move
    share = dtypes.TABLE[other].bits / dtypes.TABLE[kind].bits
    of_b = np.array(
        [
            "src" in i.fields and i.fields["src"].space == "weights"
            for i in made.program.instructions
        ]
    )
    for figure in (needs.work, needs.ddr, needs.read):
        figure[of_b] *= share
    line = timeline(made.program, seen, needs)
    critical, compute = line.spent(), needs.queue == 1
    idle = np.minimum(needs.idle, critical)  # overhead on the critical path
    bounds = {
        "compute": float((critical - idle)[compute].sum()),
        "bandwidth": float((critical - idle)[~compute].sum()),
        "launch": float(idle.sum()) + constants(seen)["start"] * seen.clock,
    }
    rate = seen.units["conv"].rate["i8"] * cores
    return Cost(
        s.chip.name,
        m,
        s.k,
        s.n,
        cores,
        line.milliseconds,
        line.cycles,
        float(needs.work[compute].sum()),
        float(needs.ddr.sum()),
        round(float((needs.read + needs.written).sum()) * size),
        m * s.k * s.n / (line.milliseconds * 1e3 * seen.clock * rate),
        max(bounds, key=lambda k: bounds[k]),
    )


def fastest(bodies: list[Graph], chip: Chip, cores: int) -> tuple[int, Compiled]:
    """The index of the graph with the fastest program, and this program."""
    results = [build(body, chip, cores=cores) for body in bodies]
    times = [timeline(m.program, chip).cycles for m in results] if len(results) > 1 else [0.0]
    best = times.index(min(times))
    return best, results[best]


def _unit(s: Spec, chip: Chip, kind: str) -> Chip:
    """The chip with the rate of matrix products, and the blocks of its native B as atoms."""
    conv, columns = chip.units["conv"], s.facts.b[kind]
    rate = chip.units["matmul"].rate[kind]
    unit = replace(
        conv,
        rate={**conv.rate, kind: rate},
        in_atom={**conv.in_atom, kind: columns[1]},
        out_atom={**conv.out_atom, kind: columns[0]},
    )
    c2 = {**chip.c2, kind: s.facts.a[kind]}
    return as_bytes(replace(chip, units={**chip.units, "conv": unit}, c2=c2), kind)


def _body(s: Spec, m: int, dtype: str, width: int) -> Graph:
    """int8 convolutions of the same shape."""
    low, high = dtypes.limits(dtype)
    end = {"dtype": dtype} if dtype == "i32" else {"dtype": dtype, "low": low, "high": high}
    inputs, outputs = [], []
    for first, count in s.k_parts():
        x = Value(Type("i8", (1, count, *s.image(m))), f"a{first}")
        inputs.append(x)
        for column in range(0, s.n, width):
            n = min(width, s.n - column)
            # ones, because zeros would be stored as sparse weights
            y = npu.conv(
                x,
                constant(np.ones((n, count, 1, 1), np.int8)),
                constant(np.ones(n, np.float32)),
                constant(np.zeros(n, np.int32)),
                stride=(1, 1),
                pad=(0, 0, 0, 0),
                dilation=(1, 1),
                x_zero=0,
                **end,
            )
            y.name = f"c{first}_{column}"
            outputs.append(y)
    return Graph(inputs, outputs, name="matmul")
