"""The execution plan: steps in order, and the address of every tensor. A package stores plans.

A Plan is a list of steps over tensors with addresses. A Tensor lies in one of five memories:

  const    the file's weights; `data` is the value, the writer chooses the offset
  arena    the session's internal memory; the memory planner chooses `offset`
  input    the caller's input number `slot`; no step may write there
  output   the caller's output number `slot`
  code     the file's NPU programs; `data` is the value, the writer chooses the offset

Tensors may share memory: a view is a second Tensor at the same address and needs no step. When the
runtime opens a file, it checks these rules:

* `inputs[i]` lies in memory input, slot i, offset 0. An output may lie anywhere: one in memory
  output, slot i, offset 0, is written straight into the caller's buffer; any other is copied there.
* Every offset is a multiple of the element size, and `offset + size` stays within the memory.
* A step's outputs lie in arena or output and overlap neither each other nor an input, except that
  output 0 of an INPLACE op may lie exactly on an input of equal element type and shape (of an
  INPLACE_FIRST op: on input 0), and output 0 of a VIEW op exactly on input 0, in any memory.
* Every output has the type that the op infers from the inputs. A tensor whose type has `dynamic`
  axes gets its true shape from the step that writes it, so a view of it needs a step.

Control flow is a step whose attributes hold Plans. These sub-plans share the arena, the constants
and the slots of the enclosing plan:

  if     attributes  then_graph, else_graph: Plan
         inputs      cond, captures...
         outputs     of the same types as those of both sub-plans
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

A Tensor object that appears on both sides (a capture, the output of a branch) is not copied; every
other one is copied when the sub-plan starts or ends. A carried output of a body may be, or lie
exactly on, the carried input of the same number, but must not overlap another one. After the last
iteration the step's carried outputs are copied from the body's carried inputs: make them the same
Tensor where possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from intaglio.ir import Array, Type

MEMORIES = ("const", "arena", "input", "output", "code")  # in the order of their codes in the file


@dataclass(eq=False, slots=True)
class Tensor:
    """A typed region of memory of `size` bytes (-1: the size of the type)."""

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
        """Whether the file holds its value."""
        return self.memory in ("const", "code")

    @property
    def end(self) -> int:
        return self.offset + self.size

    def overlaps(self, other: Tensor) -> bool:
        """Whether the two tensors share bytes."""
        here = self.memory == other.memory and self.slot == other.slot and not self.fixed
        return here and self.offset < other.end and other.offset < self.end


@dataclass(eq=False, slots=True)
class Step:
    """One call of a kernel. `op` is its name in the runtime's table; an absent input is None."""

    op: str
    inputs: list[Tensor | None]
    outputs: list[Tensor]
    attrs: dict[str, Any] = field(default_factory=dict)
    origin: str = ""  # name of the node in the user's file, e.g. "Conv_12"
    macs: int = 0  # multiply-accumulates, for reports and for the number of threads

    @property
    def plans(self) -> list[Plan]:
        """The sub-plans of control flow, in the order of the attributes."""
        return [a for a in self.attrs.values() if isinstance(a, Plan)]


@dataclass(frozen=True, slots=True)
class State:
    """A tensor carried between runs: from output `output` to input `input` of the next run."""

    input: int
    output: int
    initial: Array | None = None  # of the first run; None: zeros


@dataclass(eq=False, slots=True)
class Plan:
    """Steps in order, inputs, outputs, and the size of the arena in bytes.

    A sub-plan has `arena` 0: it uses the arena of the enclosing plan.
    """

    inputs: list[Tensor | None]
    outputs: list[Tensor]
    steps: list[Step]
    arena: int = 0
    name: str = ""
    states: list[State] = field(default_factory=list)  # of a main plan

    def walk(self) -> Iterator[Plan]:
        """This plan and all its sub-plans, each once, outer plans first."""
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
