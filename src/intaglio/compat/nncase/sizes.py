"""The extents of open dimensions: fixed ones, ranges, and the sizes of buckets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from intaglio.compat.nncase.refusals import LOG
from intaglio.compat.nncase.settings import Settings
from intaglio.compat.nncase.source import Source
from intaglio.errors import BadInput

Shapes = Mapping[str, Sequence[int]]  # of samples, by input


@dataclass(frozen=True)
class Sizes:
    """What a model with open dimensions is compiled for."""

    fixed: dict[str, int]
    ranges: dict[str, tuple[int, int]]
    segments: int

    @classmethod
    def of(cls, source: Source, settings: Settings, samples: Shapes) -> Sizes:
        """Extents from the options, from calibration samples, or 1 for a batch."""
        names = source.open
        fixed = {k: v for k, v in settings.fixed.items() if k in names}
        ranges = {k: v for k, v in settings.ranges.items() if k in names}
        if not settings.buckets and ranges:
            LOG.warning("shape_bucket_range_info is ignored: shape_bucket_enable is False")
            ranges = {}
        for name in (*settings.fixed, *settings.ranges):
            if settings.buckets and name not in names:
                has = ", ".join(names) or "none"
                LOG.warning(f"shape bucket: no open dimension is called '{name}'; there is {has}")
        for name, shape in source.declared.items():
            seen = samples.get(name, ())
            for axis, extent in enumerate(shape):
                if not isinstance(extent, str) or extent in fixed or extent in ranges:
                    continue
                if len(seen) == len(shape):
                    fixed[extent] = int(seen[axis])
                elif axis == 0:
                    fixed[extent] = 1
                else:
                    raise BadInput(_unknown(source, name, extent))
        return cls(fixed, ranges, settings.segments)

    @property
    def largest(self) -> dict[str, int]:
        return self.fixed | {name: high for name, (_, high) in self.ranges.items()}

    @property
    def open(self) -> dict[str, Any]:
        """Extents with ranges as the core writes them."""
        return self.fixed | {name: f"{low}..{high}" for name, (low, high) in self.ranges.items()}

    def buckets(self) -> list[dict[str, int]]:
        """The extents of each bucket: the upper ends of equal parts of all ranges, rising."""
        found = []
        for i in range(1, self.segments + 1):
            at = {
                name: low + -(-(high - low) * i // self.segments)
                for name, (low, high) in self.ranges.items()
            }
            if self.fixed | at not in found:
                found.append(self.fixed | at)
        return found


def _unknown(source: Source, name: str, extent: str) -> str:
    shape = ["?" if isinstance(d, str) else d for d in source.declared[name]]
    return (
        f"input '{name}' {shape} has the open dimension '{extent}'; give its extent by "
        f"compile_options.shape_bucket_fix_var_map = {{'{extent}': 224}}, or a range by "
        f"shape_bucket_enable = True and shape_bucket_range_info = {{'{extent}': [1, 224]}}"
    )
