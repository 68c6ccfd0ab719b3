"""The disassembler: NPU programs as text and as JSON, for `intaglio inspect --asm`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from intaglio.npu.own.isa import QUEUES, Feature, Program
from intaglio.plan import Plan


def programs(plan: Plan) -> list[tuple[str, Program]]:
    """The NPU programs of a plan, each with the origin of its step in the model."""
    found = []
    for p in plan.walk():
        for step in p.steps:
            if step.op == "npu.run" and step.inputs[0] is not None:
                code = step.inputs[0].data
                assert code is not None
                found.append((step.origin, Program.decode(code)))
    return found


def lines(origin: str, program: Program) -> Iterator[str]:
    """A program as text: a header, then one line per instruction."""
    yield f"program {origin or program.chip}: for {program.chip}, {_plural(program.cores, 'core')}"
    yield (
        f"  memory    {program.sram:,} bytes of SRAM per core, {program.internal:,} internal, "
        f"{program.weights:,} of weights; addresses are multiples of {program.align}"
    )
    for word, ports in (("input", program.inputs), ("output", program.outputs)):
        for i, port in enumerate(ports):
            yield f"  {word}{i:<4} {port.dtype}[{'x'.join(map(str, port.shape))}]"
    counts = Counter(i.op for i in program.instructions)
    yield f"  {len(program.instructions)} instructions: " + ", ".join(
        f"{n} {op}" for op, n in counts.most_common()
    )
    yield from disassemble(program)


def facts(origin: str, program: Program) -> dict[str, Any]:
    """A program as data for JSON."""
    return {
        "origin": origin,
        "chip": program.chip,
        **{k: getattr(program, k) for k in ("cores", "sram", "internal", "weights", "near")},
        "align": program.align,
        "inputs": [asdict(p) for p in program.inputs],
        "outputs": [asdict(p) for p in program.outputs],
        "instructions": [
            {
                "op": i.op,
                "queue": i.queue,
                "core": i.core,
                "layer": i.layer,
                "wait": i.wait,
                "barrier": i.barrier,
                **{k: _plain(v) for k, v in i.fields.items()},
            }
            for i in program.instructions
        ],
    }


def _plain(value: Any) -> Any:
    return asdict(value) if isinstance(value, Feature) else value


def _plural(n: int, word: str) -> str:
    return f"{n} {word}{'s' if n != 1 else ''}"


def disassemble(program: Program) -> Iterable[str]:
    """One line of text per instruction."""
    width = max((len(i.op) for i in program.instructions), default=0)
    for n, i in enumerate(program.instructions):
        words = [f"{k}={_word(v)}" for k, v in i.fields.items() if v is not None and v != 0]
        wait = ",".join(f"{q}>={w}" for q, w in zip(QUEUES, i.wait, strict=True) if w)
        if i.barrier:
            wait = f"{wait},barrier>={i.barrier}".lstrip(",")
        yield f"{n:6} core{i.core} L{i.layer:<4} {i.op:{width}} " + " ".join(
            [*words, *([f"[{wait}]"] if wait else [])]
        )


def _word(value: Any) -> str:
    if isinstance(value, Feature):
        slot = value.slot if value.space in ("input", "output") else ""
        lane = f"+{value.first}" if value.first else ""
        return (
            f"{value.space}{slot}[{value.offset:#x}]:{value.dtype}"
            f"({value.channels}{lane}x{value.height}x{value.width})/{value.c2}"
        )
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
