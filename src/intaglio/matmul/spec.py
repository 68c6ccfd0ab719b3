"""The specification of a matrix product: types, shapes, layouts, scales, and a chip's limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.arguments import whole_number
from intaglio.errors import BadInput, Unsupported
from intaglio.ir import Array
from intaglio.matmul import layouts
from intaglio.targets import chip as chips
from intaglio.targets.chip import Chip, Products

# Types of A, B, C: all that the header of Rockchip's runtime names (rknn_matmul_api.h, SDK 2.3.2).
COMBINATIONS = (
    "i8,i8,i32",
    "i8,i8,f32",
    "i8,i8,i8",
    "i8,i4,i32",
    "i8,i4,f16",
    "i4,i4,i16",
    "f16,f16,f32",
    "f16,f16,f16",
    "f16,i8,f32",
    "f16,i8,f16",
    "f16,i4,f32",
    "f16,i4,f16",
    "f16,i4,bf16",
)
TYPE_NAMES = {
    "int4": "i4",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "fp16": "f16",
    "fp32": "f32",
    "float16": "f16",
    "float32": "f32",
    "bfloat16": "bf16",
}

MAX_B_BYTES = 1 << 30  # B is part of the program
WIDTHS = (512, 256)  # columns of B per convolution, so that a band of results stays in a core


def types_of(words: str | Sequence[str]) -> tuple[str, str, str]:
    """The element types of A, B and C from "int8,int8,int32", "i8,i8->i32", or three words."""
    parts = words.replace("->", ",").split(",") if isinstance(words, str) else list(words)
    found = tuple(TYPE_NAMES.get(p.strip(), p.strip()) for p in parts)
    if ",".join(found) not in COMBINATIONS:
        raise BadInput(
            f"types of A, B and C are {','.join(found)}; they are one of {' '.join(COMBINATIONS)}"
        )
    return found  # type: ignore[return-value]  # there are three


@dataclass(frozen=True)
class Scales:
    """real = scale * (stored - zero); B may have scales per column, or per group of rows too."""

    a_scale: float = 1.0
    a_zero: int = 0
    b_scale: Array = field(default_factory=lambda: np.ones((), np.float32))
    b_zero: Array = field(default_factory=lambda: np.zeros((), np.int8))
    c_scale: float = 1.0
    c_zero: int = 0

    @property
    def groups(self) -> int:
        """The number of groups of rows of B with scales of their own; 0: all rows share them."""
        return self.b_scale.shape[0] if self.b_scale.ndim == 2 else 0


@dataclass(frozen=True)
class Spec:
    """A matrix product for any number of rows of A."""

    k: int
    n: int
    types: tuple[str, str, str]
    chip: Chip | None = None  # None: this machine's CPU
    layouts: tuple[str, str, str] = ("normal", "normal", "normal")

    def __post_init__(self) -> None:
        for name, extent in (("K", self.k), ("N", self.n)):
            whole_number(name, extent, 1)
        if self.chip is not None:
            _check_limits(self.chip, self.facts, self)
        for what, layout in zip("ABC", self.layouts, strict=True):
            _check_layout(self, what, layout)

    @property
    def facts(self) -> Products:
        """The matrix products of the chip's runtime."""
        assert self.chip is not None
        if self.chip.matmul is None:
            known = [n for n in chips.names() if chips.load(n).matmul]
            raise Unsupported(
                f"{self.chip.name}: its runtime has no documented standalone matrix products; "
                f"{', '.join(known)} have; compile a model with a linear layer instead"
            )
        return self.chip.matmul

    # ---- shapes --------------------------------------------------------------------------------
    def a_shape(self, m: int) -> tuple[int, ...]:
        if self.layouts[0] == "normal":
            return m, self.k
        return layouts.columns_shape(m, self.k, self.facts.a[self.types[0]])

    def b_shape(self) -> tuple[int, ...]:
        if self.layouts[1] == "native":
            block = self.facts.b[self.types[0]]
            return layouts.blocks_shape(self.k, self.n, block, self.facts.segment)
        return (self.k, self.n) if self.layouts[1] == "normal" else (self.n, self.k)

    def c_shape(self, m: int) -> tuple[int, ...]:
        if self.layouts[2] == "normal":
            return m, self.n
        return layouts.columns_shape(m, self.n, self.facts.c[self.types[2]])

    def normal_b(self, b: Array) -> Array:
        """B as [K, N], from its layout."""
        layouts.check(b, self.b_shape(), "B", self.layouts[1])
        if self.layouts[1] == "native":
            facts = self.facts
            return layouts.from_blocks(b, self.k, self.n, facts.b[self.types[0]], facts.segment)
        return np.ascontiguousarray(b.T) if self.layouts[1] == "transposed" else b

    def image(self, m: int) -> tuple[int, int]:
        """Height and width of the feature map whose pixels are the rows of A, rounded up.

        A row of pixels fills whole aligned blocks of the core's memory, which wastes none of it.
        """
        assert self.chip is not None
        wide = max(self.chip.align // self.facts.a[self.types[0]], 1)
        return (1, m) if m <= wide else (-(-m // wide), wide)

    def k_parts(self, groups: int = 0) -> list[tuple[int, int]]:
        """The parts of K that one convolution computes: first column of A and number of columns.

        The unit's input channels and the core's memory limit a part. It has whole groups.
        """
        assert self.chip is not None
        kind = self.types[0]
        bytes_per_column = self.chip.align / self.facts.a[kind] + self.facts.b[kind][0]
        channels = self.chip.units["conv"].limits.get("channels", self.k)
        assert isinstance(channels, int)
        most = min(channels, int(0.9 * self.chip.sram / bytes_per_column))
        whole = self.k // groups if groups else self.facts.k[kind]
        size = max(most // whole, 1) * whole
        return [(i, min(size, self.k - i)) for i in range(0, self.k, size)]

    def widths(self, m: int) -> list[int]:
        """The numbers of columns of B per convolution to try; all of them only for few rows."""
        some = [w for w in WIDTHS if w < self.n]
        return [self.n, *some] if self.image(m)[0] == 1 or not some else some

    def rows(self, m: int) -> None:
        """BadInput if A cannot have m rows."""
        whole_number("M", m, 1)
        if self.chip is not None and (why := self.chip.units["conv"].why_not("height", m)):
            raise Unsupported(
                f"{self.chip.name}: A has {m} rows: {why}; multiply fewer rows at a time"
            )


def _check_limits(chip: Chip, facts: Products, s: Spec) -> None:
    """Unsupported or BadInput, with the chip's limits, if its runtime does not do this product."""
    triple, kind = ",".join(s.types), s.types[0]
    if triple not in facts.types:
        raise Unsupported(f"{chip.name} does not multiply {triple}; it has {' '.join(facts.types)}")
    if (size := s.k * s.n * dtypes.TABLE[s.types[1]].bits // 8) > MAX_B_BYTES:
        raise BadInput(
            f"{chip.name}: B has {size:,} bytes; programs hold at most {MAX_B_BYTES:,}: "
            "split K, and add the results"
        )
    for what, value, whole, most in (
        ("K", s.k, facts.k, facts.most_k),
        ("N", s.n, facts.n, facts.most_n),
    ):
        if value % whole[kind]:
            raise BadInput(
                f"{chip.name}: {what} is {value}; with {kind} it is a multiple of "
                f"{whole[kind]}: add {-value % whole[kind]} zeros"
            )
        if value > most.get(kind, value):
            raise BadInput(
                f"{chip.name}: {what} is {value}; with {kind} it is at most {most[kind]}: split it"
            )


def _check_layout(s: Spec, what: str, layout: str) -> None:
    if layout not in layouts.LAYOUTS:
        raise BadInput(
            f"the layout of {what} is '{layout}'; it is one of {', '.join(layouts.LAYOUTS)}"
        )
    if layout == "native" and s.chip is None:
        raise BadInput(f"the layout of {what} is native; only chips have one, the CPU takes normal")
    if layout == "transposed" and what != "B":
        raise BadInput(f"the layout of {what} is transposed; only B can be transposed")
    if layout == "transposed" and s.chip is not None and not s.facts.transposed:
        raise Unsupported(f"{s.chip.name} takes no transposed B; use normal or native")


def scales_of(s: Spec, **given: Any) -> Scales:
    """Scales and zero points as arrays; BadInput if they do not fit the types."""
    a, b, c = s.types
    for what, kind, in_sums in (("a", a, True), ("b", b, True), ("c", c, c not in ("i16", "i32"))):
        scale, zero = np.asarray(given[f"{what}_scale"]), np.asarray(given[f"{what}_zero"])
        if kind not in ("i4", "i8") and ((scale != 1).any() or (zero != 0).any()):
            words = "has no scale" if dtypes.is_float(kind) else "holds unscaled sums"
            raise BadInput(
                f"{what.upper()} is {kind}, which {words}: leave {what}_scale and {what}_zero out"
            )
        if not np.isfinite(scale).all() or (scale <= 0).any():
            raise BadInput(f"{what}_scale has numbers that are not finite or not above 0")
        if in_sums and kind in ("i4", "i8"):
            low, high = dtypes.limits(kind)
            if (zero != np.rint(zero)).any() or (zero < low).any() or (zero > high).any():
                raise BadInput(
                    f"{what}_zero is {zero.tolist()}; whole numbers from {low} to {high} are needed"
                )
    if c in ("i16", "i32") and any((np.asarray(given[f"{w}_scale"]) != 1).any() for w in "ab"):
        raise BadInput(f"C is {c}, which holds unscaled sums; use a float C with scales")
    for name in ("a_scale", "a_zero", "c_scale", "c_zero"):
        if np.size(given[name]) != 1:
            raise BadInput(f"{name} has {np.size(given[name])} numbers; one is needed")
    scale, zero = _b_scales(s, given["b_scale"], given["b_zero"])
    return Scales(
        float(given["a_scale"]),
        int(given["a_zero"]),
        scale,
        zero,
        float(given["c_scale"]),
        int(given["c_zero"]),
    )


def _b_scales(s: Spec, scale: Any, zero: Any) -> tuple[Array, Array]:
    """B's scales and zero points in one shape: (), [N], or [groups, N]."""
    scale, zero = np.asarray(scale, np.float32), np.asarray(zero).astype(np.int8)
    scale, zero = (v.reshape(()) if v.size == 1 else v for v in (scale, zero))
    try:
        shape = np.broadcast_shapes(scale.shape, zero.shape)
    except ValueError:
        raise BadInput(
            f"b_scale {list(scale.shape)} and b_zero {list(zero.shape)} do not broadcast"
        ) from None
    right = shape in ((), (s.n,)) or (len(shape) == 2 and shape[1] == s.n and s.k % shape[0] == 0)
    if not right:
        raise BadInput(
            f"b_scale and b_zero have shape {list(shape)}; one number, [{s.n}], or "
            f"[groups, {s.n}] with groups that divide K = {s.k}, is needed"
        )
    if len(shape) == 2 and s.types[2] in ("i16", "i32"):
        raise BadInput(f"C is {s.types[2]}, one sum over all groups; use a float C")
    return np.broadcast_to(scale, shape).copy(), np.broadcast_to(zero, shape).copy()
