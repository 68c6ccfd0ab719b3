"""The scheme: type, scale and zero point of every tensor, precision of every layer."""

from __future__ import annotations

import difflib
import math
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.ir import Graph

PRECISIONS = ("int8", "int16", "f32", "f16", "bf16")


def _warn(words: str) -> None:
    warnings.warn(words, stacklevel=3)


@dataclass(frozen=True)
class TensorScheme:
    """real = scale * (stored - zero). A float `dtype` has no scale: the tensor is not quantised.

    With `axis` there is one scale for each index along it; with `block` one for each run of that
    many indices, at every position of the other axes, in row-major order. `lo` and `hi` are the
    range that scale and zero were made from.
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
        """Why the scheme is invalid, or None."""
        if self.dtype not in dtypes.TABLE or dtypes.TABLE[self.dtype].kind == "b":
            return f"type is '{self.dtype}'; known are i8, u8, i16, u16, i4, u4, f32, f16, bf16"
        if not (math.isfinite(self.lo) and math.isfinite(self.hi) and self.lo <= self.hi):
            return f"range is [{self.lo}, {self.hi}]; give two finite numbers, the smaller first"
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
        if self.block < 0:
            return f"block is {self.block}; it must be a positive number"
        if self.axis is None and (self.block or len(self.scale) > 1):
            return f"{len(self.scale)} scales without an axis; say along which"
        return None

    def disagreement(self) -> str | None:
        """A warning if scale and zero point cover another range than `lo` to `hi`, or None.

        This happens if a user edits one and forgets the other.
        """
        if len(self.scale) != 1 or self.lo == self.hi:
            return None
        first, last = dtypes.limits(self.dtype)
        scale, zero = self.scale[0], self.zero[0]
        least, most = scale * (first - zero), scale * (last - zero)
        lo, hi, slack = min(self.lo, 0.0), max(self.hi, 0.0), 2 * scale
        reach = max(-lo, hi)
        spans = abs(lo - least) <= slack and abs(hi - most) <= slack
        mirrors = abs(reach - most) <= slack and abs(reach + least) <= slack
        if spans or mirrors:
            return None
        return (
            f"range is [{self.lo:g}, {self.hi:g}], but scale and zero cover [{least:g}, {most:g}] "
            "and take precedence; remove them to derive them from the range"
        )


@dataclass(frozen=True)
class Override:
    """A user's rule: the layers that `tensor`, `pattern` or `op` selects get `precision`."""

    precision: str
    tensor: str = ""  # the exact name of any output of the layer
    pattern: str = ""  # * ? [] as in file names, compared with the name of the first output
    op: str = ""  # conv, matmul, softmax, ...

    def matches(self, op: str, names: list[str]) -> bool:
        """Does the rule select a layer with this op and these output names?"""
        if self.op:  # the optimiser turns gemm into matmul and back
            return op == self.op or {op, self.op} == {"gemm", "matmul"}
        return self.tensor in names if self.tensor else fnmatchcase(names[0], self.pattern)


@dataclass
class Scheme:
    """Schemes by tensor, and precisions by layer (named by its first output).

    `rules` are the user's overrides: they take precedence over `layers`, later ones over earlier.
    """

    tensors: dict[str, TensorScheme] = field(default_factory=dict)
    layers: dict[str, str] = field(default_factory=dict)
    rules: list[Override] = field(default_factory=list)
    model: str = ""  # its name
    strict: bool = False  # unknown names are errors, not warnings
    source: str = "scheme"  # its name in messages: the file's path

    @classmethod
    def load(cls, path: str | Path, strict: bool = False) -> Scheme:
        """The scheme in a YAML file; BadInput names the line or key that is wrong."""
        from intaglio.quant.placement import scheme_file

        return scheme_file.read(path, strict)

    def save(self, path: str | Path) -> None:
        """Write it as YAML; `load` gives exactly the same scheme back."""
        from intaglio.quant.placement import scheme_file

        scheme_file.write(self, path)

    def wanted(self, graph: Graph, warn: Callable[[str], None] = _warn) -> dict[str, str]:
        """The precision of every layer that this scheme fixes.

        Names of layers and tensors that the graph lacks are warnings, or BadInput if the scheme
        is strict.
        """
        layers = {n: [v.name for v in n.outputs] for n in graph.nodes()}
        names = {name for of in layers.values() for name in of if name}
        tell = self._refuse if self.strict else warn
        self._check_tensors(graph, tell)
        floats = {name for name, t in self.tensors.items() if not t.scale}
        found = {
            of[0]: "f32"
            for n, of in layers.items()
            if any(v is not None and v.data is not None and v.name in floats for v in n.inputs)
        }
        rules = [Override(p, tensor=name) for name, p in self.layers.items()]
        for rule in [*rules, *self.rules]:
            hits = [of[0] for n, of in layers.items() if rule.matches(n.op, of)]
            found.update(dict.fromkeys(hits, rule.precision))
            if not hits:
                tell(self._nothing(rule, names, {n.op for n in layers}))
        return found

    def _check_tensors(self, graph: Graph, tell: Callable[[str], None]) -> None:
        known = {v.name: v for v in graph.values() if v.name}
        for name, t in self.tensors.items():
            if name not in known:
                tell(f"{self.source}: no tensor is called '{name}'; {_nearest(name, known)}")
                continue
            if (wrong := _misfit(t, known[name].shape)) is not None:
                raise BadInput(f"{self.source}: tensor '{name}': {wrong}")
            if (wrong := t.disagreement()) is not None:
                tell(f"{self.source}: tensor '{name}': {wrong}")

    def _nothing(self, rule: Override, names: Collection[str], ops: Collection[str]) -> str:
        """The message for a rule that selects no layer."""
        if rule.op:
            has = ", ".join(sorted(ops))
            return f"{self.source}: no layer is a {rule.op}; the model has {has}"
        if rule.pattern:
            return f"{self.source}: no layer matches '{rule.pattern}'; {_some(names)}"
        return f"{self.source}: no layer is called '{rule.tensor}'; {_nearest(rule.tensor, names)}"

    def _refuse(self, words: str) -> None:
        raise BadInput(f"{words}; in strict mode this is an error")


def _misfit(t: TensorScheme, shape: tuple[int, ...]) -> str | None:
    """Why a tensor of this shape cannot have this scheme, or None."""
    if t.axis is None:
        return None
    if not -len(shape) <= t.axis < len(shape):
        return f"axis is {t.axis}, its shape is {shape}"
    extent = shape[t.axis]
    count = extent
    if t.block:
        count = -(-extent // t.block)
        for i, d in enumerate(shape):
            count *= d if i != t.axis % len(shape) else 1
    if t.scale and len(t.scale) != count:
        each = f"blocks of {t.block} along axis {t.axis}" if t.block else f"axis {t.axis}"
        return f"{len(t.scale)} scales, its shape {shape} has {count} for {each}"
    return None


def _nearest(name: str, names: Collection[str]) -> str:
    """A hint: the names nearest to an unknown one."""
    if near := difflib.get_close_matches(name, sorted(names), 3, 0.6):
        return "did you mean " + " or ".join(f"'{n}'" for n in near) + "?"
    return _some(names) + "; merged layers are named by their last output"


def _some(names: Collection[str]) -> str:
    shown = ", ".join(f"'{n}'" for n in sorted(names)[:6])
    return f"the model has {shown}{', ...' if len(names) > 6 else ''}"
