"""What runs when, and where its bytes live: the in-memory form of a package file.

A Plan is a list of steps over tensors that have an address. A Tensor lies in one of five memories:

  const    the file's weights; `data` is their value, the writer chooses the place
  arena    the session's internal memory; `offset` is decided by the memory planner
  input    the caller's input number `slot`; no step may write there
  output   the caller's output number `slot`
  code     the file's NPU programs; `data` is their value, as of `const`

Several tensors may share memory: a view that costs nothing is a second Tensor at the same place,
and then no step is needed. The rules that the runtime checks when it opens a file:

* `inputs[i]` lies in memory input, slot i, offset 0. An output may lie anywhere: one in memory
  output, slot i, offset 0, is written straight into the caller's buffer; any other is copied there.
* Every offset is a multiple of the element size, and `offset + size` stays inside of its memory.
* A step's outputs lie in arena or output and overlap neither each other nor an input, except that
  output 0 of an INPLACE op may lie exactly on an input of equal element type and shape (of an
  INPLACE_FIRST op: on input 0), and output 0 of a VIEW op exactly on input 0, in any memory.
* Every output has the type that the op infers from the inputs. A tensor whose type has `dynamic`
  axes gets its true shape from the step that makes it, so a view of it needs a step.

Control flow is a step whose attributes hold Plans, which share the arena, the constants and the
slots of the plan around them:

  if     attributes  then_graph, else_graph: Plan
         inputs      cond, captures...
         outputs     as those of both sub-plans
         sub-plans   inputs captures...

  loop   attributes  body: Plan; carried, bound: int
         inputs      trip, cond, carried..., captures...    trip and cond may be None
         outputs     carried..., scans...     a scan is [bound, *shape], dynamic in axis 0 unless
                                              the loop always runs `bound` times
         body        inputs iter, cond, carried..., captures...    iter and cond may be None
                     outputs cond, carried..., scans...

  scan   attributes  body: Plan; states, scans (how many inputs are scanned): int
                     reverse_in, reverse_out: int, bit i: scanned input or output i runs backwards
         inputs      states..., scanned..., captures...     the steps are on axis 0
         outputs     states..., scans...
         body        inputs states..., slices..., captures...
                     outputs states..., slices...

What is the very same Tensor on both sides (a capture, the output of a branch) is not copied; all
else is copied when the sub-plan starts or ends. A carried output of a body may be, or lie exactly
on, the carried input of the same number, but must not touch another one. After the last iteration
the step's carried outputs are copied from the body's carried inputs: make them the same Tensor
where possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from intaglio.ir import Array, Type

MEMORIES = ("const", "arena", "input", "output", "code")  # in the order of their codes in the file


@dataclass(eq=False, slots=True)
class Tensor:
    """A typed region of memory; `size` bytes are reserved there (-1: what the type needs)."""

    type: Type
    memory: str = "arena"
    offset: int = 0
    slot: int = 0
    name: str = ""
    data: Array | None = None
    size: int = -1

    def __post_init__(self) -> None:
        if self.size < 0:
            self.size = self.type.bytes

    @classmethod
    def const(cls, data: Array, type: Type, name: str = "") -> Tensor:
        """A tensor of the file's weights."""
        return cls(type, "const", name=name, data=data)

    @property
    def fixed(self) -> bool:
        """Does the file hold its value?"""
        return self.memory in ("const", "code")

    @property
    def end(self) -> int:
        return self.offset + self.size

    def overlaps(self, other: Tensor) -> bool:
        """Do the two share bytes?"""
        here = self.memory == other.memory and self.slot == other.slot and not self.fixed
        return here and self.offset < other.end and other.offset < self.end


@dataclass(eq=False, slots=True)
class Step:
    """One call of a kernel. `op` is its name in the runtime's table; an absent input is None."""

    op: str
    inputs: list[Tensor | None]
    outputs: list[Tensor]
    attrs: dict[str, Any] = field(default_factory=dict)
    origin: str = ""  # the place in the user's file, e.g. "Conv_12"
    macs: int = 0  # multiply-accumulates: for reports, and to decide how many threads pay off

    @property
    def plans(self) -> list[Plan]:
        """The sub-plans that it runs, in the order of its attributes."""
        return [a for a in self.attrs.values() if isinstance(a, Plan)]


@dataclass(frozen=True, slots=True)
class State:
    """What outlives a run: the next one reads as input `input` what this one made as `output`."""

    input: int
    output: int
    initial: Array | None = None  # what the first run reads; None: zeros


@dataclass(eq=False, slots=True)
class Plan:
    """Steps in order, what they read and make, and the bytes of internal memory they need.

    A sub-plan has `arena` 0: it uses the arena of the plan around it.
    """

    inputs: list[Tensor | None]
    outputs: list[Tensor]
    steps: list[Step]
    arena: int = 0
    name: str = ""
    states: list[State] = field(default_factory=list)  # of a main plan

    def walk(self) -> Iterator[Plan]:
        """This plan and all plans inside of it, each once, outer ones first."""
        todo, seen = [self], {self}
        for plan in todo:
            yield plan
            new = dict.fromkeys(p for s in plan.steps for p in s.plans if p not in seen)
            seen.update(new)
            todo.extend(new)

    def tensors(self) -> Iterator[Tensor]:
        """Every tensor of this plan and its sub-plans, once, in the order of first mention."""
        seen: set[Tensor] = set()
        for plan in self.walk():
            mentioned = [*plan.inputs, *plan.outputs]
            for step in plan.steps:
                mentioned += [*step.inputs, *step.outputs]
            for t in mentioned:
                if t is not None and t not in seen:
                    seen.add(t)
                    yield t
