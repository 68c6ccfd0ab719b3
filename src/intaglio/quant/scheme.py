"""What a quantised model stores each tensor in, and computes each layer in: readable, editable."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from intaglio import dtypes
from intaglio.errors import BadInput

PRECISIONS = ("int8", "int16", "f32", "f16", "bf16")


@dataclass(frozen=True)
class TensorScheme:
    """real = scale * (stored - zero). A float `dtype` has no scale: the tensor stays as it is.

    `axis`: one scale for each index along it, or with `block` for each run of so many indices.
    `lo` and `hi` are the range that the scale was made for.
    """

    dtype: str
    scale: tuple[float, ...] = ()
    zero: tuple[int, ...] = ()
    axis: int | None = None
    block: int = 0
    lo: float = 0.0
    hi: float = 0.0

    def __post_init__(self) -> None:
        if len(self.zero) == 1 != len(self.scale):
            object.__setattr__(self, "zero", self.zero * len(self.scale))
        if wrong := self._wrong():
            raise BadInput(wrong)

    def _wrong(self) -> str | None:
        """The words, where this cannot be."""
        if self.dtype not in dtypes.TABLE or dtypes.TABLE[self.dtype].kind == "b":
            return f"type is '{self.dtype}'; known are i8, u8, i16, u16, i4, u4, f32, f16, bf16"
        if not dtypes.is_integer(self.dtype):
            return "scale is given for a float type; leave it out" if self.scale else None
        if not self.scale:
            return f"scale is missing for type {self.dtype}"
        if len(self.zero) != len(self.scale):
            return f"{len(self.scale)} scales and {len(self.zero)} zero points; give as many"
        if not all(0 < s < float("inf") for s in self.scale):
            bad = next(s for s in self.scale if not 0 < s < float("inf"))
            return f"scale is {bad}; it must be a positive, finite number"
        lo, hi = dtypes.limits(self.dtype)
        if not all(lo <= z <= hi for z in self.zero):
            bad = next(z for z in self.zero if not lo <= z <= hi)
            return f"zero point is {bad}; {self.dtype} holds {lo} to {hi}"
        if self.axis is None and (self.block or len(self.scale) > 1):
            return f"{len(self.scale)} scales without an axis; say along which"
        return None


@dataclass(frozen=True)
class Override:
    """A wish of the user: the layers that `tensor`, `pattern` or `op` names get `precision`."""

    precision: str
    tensor: str = ""  # the exact name of any output of the layer
    pattern: str = ""  # * ? [] as in file names, compared with the name of the first output
    op: str = ""  # conv, matmul, softmax, ...

    def matches(self, op: str, names: list[str]) -> bool:
        """Does it speak of a layer of this op whose outputs have these names?"""
        if self.op:
            return op == self.op
        return self.tensor in names if self.tensor else fnmatchcase(names[0], self.pattern)


@dataclass
class Scheme:
    """Types and parameters by tensor, precision by layer (called by its first output).

    `rules` are the user's overrides, in order: a later one wins.
    """

    tensors: dict[str, TensorScheme] = field(default_factory=dict)
    layers: dict[str, str] = field(default_factory=dict)
    rules: list[Override] = field(default_factory=list)
