"""What is multiplied: types, extents, layouts and scales, and in words what a target cannot do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput, Unsupported
from intaglio.ir import Array
from intaglio.matmul import layouts
from intaglio.targets import chip as chips
from intaglio.targets.chip import Chip, Products

# All that the public header of Rockchip's runtime (rknn_matmul_api.h, SDK 2.3.2) names: A, B, C.
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
WORDS = {
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

MOST = 1 << 30  # bytes of B, which a program has with it
WIDTHS = (512, 256)  # columns of B whose results, of some rows, stay in a core while weights stream


def types_of(words: str | Sequence[str]) -> tuple[str, str, str]:
    """The element types of A, B and C from "int8,int8,int32", "i8,i8->i32", or three words."""
    parts = words.replace("->", ",").split(",") if isinstance(words, str) else list(words)
    found = tuple(WORDS.get(p.strip(), p.strip()) for p in parts)
    if ",".join(found) not in COMBINATIONS:
        raise BadInput(
            f"types of A, B and C are {','.join(found)}; {', '.join(COMBINATIONS)} exist"
        )
    return found  # type: ignore[return-value]  # there are three


@dataclass(frozen=True)
class Scales:
    """real = scale * (stored - zero) of each matrix; B's differ by column or by group of rows."""

    a_scale: float = 1.0
    a_zero: int = 0
    b_scale: Array = field(default_factory=lambda: np.ones((), np.float32))
    b_zero: Array = field(default_factory=lambda: np.zeros((), np.int8))
    c_scale: float = 1.0
    c_zero: int = 0

    @property
    def groups(self) -> int:
        """Groups of rows of B that have scales of their own; 0: all rows share them."""
        return self.b_scale.shape[0] if self.b_scale.ndim == 2 else 0


@dataclass(frozen=True)
class Spec:
    """A product of matrices, whatever the rows of A are."""

    k: int
    n: int
    types: tuple[str, str, str]
    chip: Chip | None = None  # None: this machine's CPU
    layouts: tuple[str, str, str] = ("normal", "normal", "normal")

    def __post_init__(self) -> None:
        if self.k < 1 or self.n < 1:
            raise BadInput(f"K is {self.k}, N is {self.n}; both are at least 1")
        if self.chip is not None:
            _within(self.chip, self.facts, self)
        for what, layout in zip("ABC", self.layouts, strict=True):
            _layout(self, what, layout)

    @property
    def facts(self) -> Products:
        """What the chip's runtime multiplies."""
        assert self.chip is not None
        if self.chip.matmul is None:
            known = [n for n in chips.names() if chips.load(n).matmul]
            raise Unsupported(
                f"{self.chip.name}: nothing says that its runtime multiplies matrices by "
                f"themselves; {', '.join(known)} do; compile a model with a linear layer instead"
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
        """B as [K, N], whatever its layout is."""
        layouts.check(b, self.b_shape(), "B", self.layouts[1])
        if self.layouts[1] == "native":
            facts = self.facts
            return layouts.from_blocks(b, self.k, self.n, facts.b[self.types[0]], facts.segment)
        return np.ascontiguousarray(b.T) if self.layouts[1] == "transposed" else b

    def image(self, m: int) -> tuple[int, int]:
        """Height and width of the image whose pixels are the rows of A, maybe more of them.

        A row of pixels that fills whole addresses of the core's memory wastes none of it.
        """
        assert self.chip is not None
        wide = max(self.chip.align // self.facts.a[self.types[0]], 1)
        return (1, m) if m <= wide else (-(-m // wide), wide)

    def cuts(self, groups: int = 0) -> list[tuple[int, int]]:
        """First and number of the columns of A that one program part takes: whole groups, if any.

        A unit reads so many channels, and a core holds those of some pixels with their weights.
        """
        assert self.chip is not None
        kind = self.types[0]
        room = self.chip.align / self.facts.a[kind] + self.facts.b[kind][0]
        channels = self.chip.units["conv"].limits.get("channels", self.k)
        assert isinstance(channels, int)
        most = min(channels, int(0.9 * self.chip.sram / room))
        whole = self.k // groups if groups else self.facts.k[kind]
        size = max(most // whole, 1) * whole
        return [(i, min(size, self.k - i)) for i in range(0, self.k, size)]

    def widths(self, m: int) -> list[int]:
        """Columns of B that one convolution may take, to be tried: of few rows also all."""
        some = [w for w in WIDTHS if w < self.n]
        return [self.n, *some] if self.image(m)[0] == 1 or not some else some

    def rows(self, m: int) -> None:
        """BadInput where A cannot have m rows."""
        if m < 1:
            raise BadInput(f"M is {m}; it is at least 1")
        if self.chip is not None and (why := self.chip.units["conv"].why_not("height", m)):
            raise Unsupported(f"{self.chip.name}: {m} rows of A: {why}; multiply some at a time")


def _within(chip: Chip, facts: Products, s: Spec) -> None:
    """Refuse what the chip's runtime does not do, and say what it does."""
    triple, kind = ",".join(s.types), s.types[0]
    if triple not in facts.types:
        raise Unsupported(f"{chip.name} does not multiply {triple}; it has {' '.join(facts.types)}")
    if (size := s.k * s.n * dtypes.TABLE[s.types[1]].bits // 8) > MOST:
        raise BadInput(
            f"{chip.name}: B has {size:,} bytes; programs hold at most {MOST:,}: "
            "multiply in parts, and add them"
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
                f"{chip.name}: {what} is {value}; with {kind} it is at most "
                f"{most[kind]}: multiply in parts"
            )


def _layout(s: Spec, what: str, layout: str) -> None:
    if layout not in layouts.LAYOUTS:
        raise BadInput(f"the layout of {what} is '{layout}'; {', '.join(layouts.LAYOUTS)} exist")
    if layout == "native" and s.chip is None:
        raise BadInput(f"{what}: native layouts are those of chips; the CPU's is normal")
    if layout == "transposed" and what != "B":
        raise BadInput(f"{what} is transposed; only B may be")
    if layout == "transposed" and s.chip is not None and not s.facts.transposed:
        raise Unsupported(f"{s.chip.name} takes no transposed B; normal and native are possible")


def scales_of(s: Spec, **given: Any) -> Scales:
    """Scales and zeros, as arrays of one size; BadInput where they do not fit the types."""
    a, b, c = s.types
    for what, kind, in_sums in (("a", a, True), ("b", b, True), ("c", c, c not in ("i16", "i32"))):
        scale, zero = np.asarray(given[f"{what}_scale"]), np.asarray(given[f"{what}_zero"])
        if kind not in ("i4", "i8") and ((scale != 1).any() or (zero != 0).any()):
            words = "has no scale" if dtypes.is_float(kind) else "holds the sums themselves"
            raise BadInput(
                f"{what.upper()} is {kind}, which {words}: leave {what}_scale and {what}_zero out"
            )
        if not np.isfinite(scale).all() or (scale <= 0).any():
            raise BadInput(f"{what}_scale is not above 0 everywhere")
        if in_sums and kind in ("i4", "i8"):
            low, high = dtypes.limits(kind)
            if (zero != np.rint(zero)).any() or (zero < low).any() or (zero > high).any():
                raise BadInput(f"{what}_zero: whole numbers from {low} to {high} are needed")
    if c in ("i16", "i32") and any((np.asarray(given[f"{w}_scale"]) != 1).any() for w in "ab"):
        raise BadInput(
            f"C is {c}, the sums themselves, in which scales have no place: take a C of floats"
        )
    for name in ("a_scale", "a_zero", "c_scale", "c_zero"):
        if np.size(given[name]) != 1:
            raise BadInput(f"{name} has {np.size(given[name])} numbers; one is needed")
    scale, zero = _grain(s, given["b_scale"], given["b_zero"])
    return Scales(
        float(given["a_scale"]),
        int(given["a_zero"]),
        scale,
        zero,
        float(given["c_scale"]),
        int(given["c_zero"]),
    )


def _grain(s: Spec, scale: Any, zero: Any) -> tuple[Array, Array]:
    """B's scales and zeros with one shape: (), [N], or [groups, N]."""
    scale, zero = np.asarray(scale, np.float32), np.asarray(zero).astype(np.int8)
    scale, zero = (v.reshape(()) if v.size == 1 else v for v in (scale, zero))
    try:
        shape = np.broadcast_shapes(scale.shape, zero.shape)
    except ValueError:
        raise BadInput(
            f"b_scale {list(scale.shape)} and b_zero {list(zero.shape)} do not fit each other"
        ) from None
    right = shape in ((), (s.n,)) or (len(shape) == 2 and shape[1] == s.n and s.k % shape[0] == 0)
    if not right:
        raise BadInput(
            f"b_scale and b_zero have shape {list(shape)}; one number, [{s.n}], or "
            f"[groups, {s.n}] with groups that divide K = {s.k}, are possible"
        )
    if len(shape) == 2 and s.types[2] in ("i16", "i32"):
        raise BadInput(f"C is {s.types[2]}, one sum over all groups: take a C of floats")
    return np.broadcast_to(scale, shape).copy(), np.broadcast_to(zero, shape).copy()
