"""Targets: the abilities of a CPU or chip as data, so that passes never ask for its name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from intaglio import cpu_isa
from intaglio.arguments import described
from intaglio.errors import BadInput, did_you_mean, option
from intaglio.ir import Node
from intaglio.rewrite import Rule
from intaglio.targets import chip as chips
from intaglio.targets.chip import Chip
from intaglio.targets.cost import USUAL, Cost
from intaglio.targets.precision import Precision, Stored


@dataclass(frozen=True)
class Target:
    """A CPU or a chip: its rewrite rules, its cost model, and the nodes that it can run."""

    name: str
    why_not: Callable[[Node], str | None]  # None: it can run this node; otherwise the reason
    lower: tuple[Rule, ...] = ()  # neutral ops to the target's ops
    fuse: tuple[Rule, ...] = ()  # the target's ops with their epilogues
    block: tuple[Rule, ...] = ()  # several of the target's ops into one, where that is faster
    chain: tuple[Rule, ...] = ()  # remaining elementwise ops into one
    isa: int = 0  # a CPU's instruction sets, as bits of intaglio.cpu_isa
    cost: Cost = USUAL  # decides between competing rules
    choose: tuple[Rule, ...] = ()  # neutral ops to faster target ops that round differently
    narrow: tuple[Rule, ...] = ()  # target ops to ops of the type `precision`
    precision: str = "f32"  # of float layers
    image_cache: int = (
        0  # bytes of a layer's images that fit into the caches; 0: never slice a batch
    )
    # equivalents that the target runs faster (targets.replace); of an NPU: only when quantising
    replace: tuple[Rule, ...] = ()
    chip: Chip | None = None  # the NPU, whose ops `lower` makes
    volumes: tuple[Rule, ...] = ()  # of an NPU: ops on N x C x D x H x W to ops on their slices
    host: Target | None = None  # of an NPU: the CPU that runs all other nodes
    precisions: tuple[Precision, ...] = ()  # types that layers of quantised models compute in
    weight_only: Stored | None = None  # integer weights that it computes with in floats, if any
    dynamic: tuple[str, ...] = ()  # ops that quantise their inputs at run time

    def in_precision(self, name: str) -> Precision:
        """The precision of this name; BadInput lists the target's precisions."""
        for p in self.precisions:
            if p.name == name:
                return p
        has = ", ".join(p.name for p in self.precisions) or "none"
        raise BadInput(f"{self.name} cannot compute layers in {name}; its precisions are {has}")

    @property
    def preferred_precision(self) -> Precision:
        """The preferred integer precision."""
        for p in self.precisions:
            if not p.is_float:
                return p
        raise BadInput(f"{self.name} has no integer precision; quantise for another target")


NAMES = ("cpu", *chips.names())
PRECISIONS = ("f32", "bf16", "f16")
PRECISION_ALIASES = {"fp32": "f32", "fp16": "f16"}


def known_precision(name: str) -> str:
    """The canonical name of a precision; BadInput where there is no such precision."""
    canonical = PRECISION_ALIASES.get(name, name) if isinstance(name, str) else None
    if canonical in PRECISIONS:
        return canonical
    words = f"precision is {name!r}; it is the type of float layers; known are "
    words += ", ".join(PRECISIONS)
    if re.fullmatch(r"[iu](?:nt)?(?:4|8|16)|uint(?:4|8|16)|w4a16", str(name).lower()):
        words += "; for integers quantise the model first, with intaglio.quantize(model, samples)"
    raise BadInput(words)


def find(name: str | Target, isa: str | int | None = None, precision: str | None = None) -> Target:
    """The target called `name`: "cpu", a chip, or a TOML file that describes one; or the one given.

    `isa` is for CPUs, also for those next to an NPU. None means this machine's CPU, and plain C
    (scalar) next to an NPU. `precision` None means f32. A Target object has both already: other
    ones than its own are refused.
    """
    if isinstance(name, Target):
        _refuse_other(name, isa, precision)
        return name
    if not isinstance(name, str):
        raise BadInput(
            f'target is {described(name)}; give a name such as "cpu" or "rk3588", or a Target'
        )
    if not name.endswith(".toml"):
        name = _known(name)
    precision = known_precision(precision or "f32")
    if name == "cpu":
        from intaglio.targets import cpu

        return cpu.target(isa, precision)
    from intaglio.npu.lowering.target import npu_target

    return npu_target(chips.load(name), isa, precision)


def _known(name: str) -> str:
    """The target's name in lower case: RK3588 is rk3588."""
    if name.lower() in NAMES:
        return name.lower()
    if hint := did_you_mean(name, NAMES, 3):
        raise BadInput(f"no target is called '{name}'{hint}")
    raise BadInput(
        f"no target is called '{name}'; known are {', '.join(NAMES)}, "
        "and any TOML file that describes a chip"
    )


def _refuse_other(target: Target, isa: str | int | None, precision: str | None) -> None:
    """BadInput where a Target object is for another instruction set or precision."""
    bits = cpu_isa.bits_of(isa) if isinstance(isa, str) else isa
    if bits is not None and bits != target.isa:
        raise BadInput(
            f"isa is {isa!r}, but the Target object '{target.name}' is for "
            f"{cpu_isa.name_of(target.isa)}; leave {option('isa')} out, or give the target's name"
        )
    if precision is not None and known_precision(precision) != target.precision:
        raise BadInput(
            f"precision is '{precision}', but the Target object '{target.name}' computes in "
            f"{target.precision}; leave {option('precision')} out, or give the target's name"
        )
