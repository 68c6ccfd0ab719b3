"""The result of a check: which outputs were compared, and by how much they differ."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from intaglio.errors import BadInput, option

LIMIT = 1e-5  # of the range: both models compute the same, perhaps in another order
MANY = 3  # outputs that are not listed one by one if all are equal


@dataclass(frozen=True)
class OutputCheck:
    """One output of the edited model."""

    name: str
    tensor: str | None  # of the original model, that it was compared with
    intended: bool  # an edit changed it on purpose
    difference: float | None  # the largest, relative to the range; None if not compared

    @property
    def ok(self) -> bool:
        return self.intended or self.difference is None or self.difference <= LIMIT


@dataclass
class Check:
    """The result: `ran` is False if Intaglio cannot run the model, for `reason`."""

    ran: bool
    reason: str = ""
    sizes: list[str] = field(default_factory=list)  # of the inputs of each run
    limits: str = ""  # the batch at which it does not run, and why
    outputs: list[OutputCheck] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return all(o.ok for o in self.outputs)

    def require(self) -> None:
        """BadInput if an output differs that should not."""
        for o in self.outputs:
            if not o.ok:
                raise BadInput(
                    f"output '{o.name}' differs by {o.difference:.1e} of its range from tensor "
                    f"'{o.tensor}' of the original model, although no edit changes it; nothing is "
                    f"written; skip the comparison with {option('check', False)}"
                )

    def __str__(self) -> str:
        """What was compared, in one line."""
        if not self.ran:
            return f"not run: {self.reason}"
        same = [o for o in self.outputs if not o.intended and o.difference is not None]
        changed = [o for o in self.outputs if o.intended]
        words = [f"runs at {' and at '.join(self.sizes)}" if self.sizes else "runs"]
        words += [self.limits] if self.limits else []
        if same:
            worst = max(o.difference or 0 for o in same)
            how = "equal to" if worst == 0 else f"within {worst:.1e} of the range of"
            words.append(f"{how} the original: {_listed(same, len(self.outputs))}")
        if changed:
            words.append(f"changed by edits: {', '.join(map(_by_how_much, changed))}")
        return "; ".join(words)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "words": str(self)}


def _listed(found: list[OutputCheck], of: int) -> str:
    if len(found) == of and of > MANY and all(o.name == o.tensor for o in found):
        return f"all {of} outputs"
    return ", ".join(map(_named, found))


def _named(o: OutputCheck) -> str:
    return o.name if o.tensor == o.name else f"{o.name} (was {o.tensor})"


def _by_how_much(o: OutputCheck) -> str:
    return o.name if o.difference is None else f"{o.name} (by {o.difference:.1%} of the range)"
