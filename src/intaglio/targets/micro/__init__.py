"""The target of exported C: int8 kernels for small cores, channels-last, without packed forms."""

from __future__ import annotations

from intaglio.targets import Target
from intaglio.targets.cpu.lower import pool_channels_last
from intaglio.targets.cpu.qpool import qlinear_avg_pool_channels_last
from intaglio.targets.micro.lower import MICRO, MICRO_TABLES
from intaglio.targets.micro.support import why_not


def target() -> Target:
    """Cores that run the kernels of intaglio.export.deploy."""
    lower = (*MICRO, pool_channels_last, qlinear_avg_pool_channels_last)
    return Target("deploy", why_not, lower, choose=MICRO_TABLES)
