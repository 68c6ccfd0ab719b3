"""Arrays of two runs compared by name, with the figures and verdicts of npz_tool compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from intaglio.compat.log import Log
from intaglio.errors import BadInput
from intaglio.ir import Array

CLOSE_ORDER = 3  # decimal places in which close tensors agree, relatively
LARGE = 10000.0  # stands for infinities
TINY = 1e-7  # keeps the Euclidean similarity of zeros finite


@dataclass(frozen=True)
class Tolerance:
    """The least cosine and Euclidean similarity."""

    cosine: float
    euclidean: float

    @classmethod
    def of(cls, text: str, option: str = "--tolerance") -> Tolerance:
        """From "0.9,0.8"; a third number is for other figures."""
        try:
            found = [float(w) for w in text.split(",")]
        except ValueError:
            found = []
        if not 1 <= len(found) <= 3 or not all(f <= 1 for f in found[:2]):
            raise BadInput(f"{option} is '{text}'; give two numbers up to 1, such as 0.9,0.8")
        return cls(found[0], found[1] if len(found) > 1 else 0.0)


@dataclass(frozen=True)
class Verdict:
    """How similar two tensors are."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: str  # EQUAL, CLOSE, SIMILAR, NOT_SIMILAR or NOT_MATCH
    cosine: float = 1.0
    euclidean: float = 1.0
    sqnr: float = float("inf")

    @property
    def passed(self) -> bool:
        return self.kind in ("EQUAL", "CLOSE", "SIMILAR")


def compare_one(name: str, target: Array, reference: Array, least: Tolerance) -> Verdict:
    """One tensor against its reference."""
    about = name, target.shape, str(target.dtype)
    if target.size != reference.size:
        return Verdict(*about, "NOT_MATCH", 0.0, 0.0, float("-inf"))
    x, y = (np.asarray(a).astype(np.float32).ravel() for a in (target, reference))
    if np.array_equal(x, y):
        return Verdict(*about, "EQUAL")
    if np.allclose(x, y, rtol=10.0**-CLOSE_ORDER, atol=1e-8, equal_nan=True):
        return Verdict(*about, "CLOSE")
    return _measured(about, _finite(x), _finite(y), least)


def _finite(x: Array) -> Array:
    return np.nan_to_num(x, nan=0.0, posinf=LARGE, neginf=-LARGE).astype(np.float64)


def _measured(
    about: tuple[str, tuple[int, ...], str], x: Array, y: Array, least: Tolerance
) -> Verdict:
    lengths = float(np.linalg.norm(x) * np.linalg.norm(y))
    cosine = float(x @ y) / lengths if lengths else 0.0
    euclidean = 1 - float(np.linalg.norm(x - y)) / (float(np.linalg.norm((x + y) / 2)) + TINY)
    signal, noise = float(np.var(x)), float(np.var(x - y))
    sqnr = 10 * float(np.log10(signal / noise)) if signal and noise else float("inf")
    similar = cosine > least.cosine and euclidean > least.euclidean
    return Verdict(*about, "SIMILAR" if similar else "NOT_SIMILAR", cosine, euclidean, sqnr)


def compare(
    target: Mapping[str, Array],
    reference: Mapping[str, Array],
    least: Tolerance,
    excepts: Sequence[str] = (),
) -> list[Verdict]:
    """All tensors that both have, in the order of the reference."""
    names = [n for n in reference if n in target and n not in excepts]
    return [compare_one(n, target[n], reference[n], least) for n in names]


def report(
    verdicts: Sequence[Verdict], log: Log, titles: tuple[str, str], brief: bool = False
) -> bool:
    """Print the verdicts; whether all passed. Nothing compared is not passed."""
    for v in verdicts:
        if brief and v.passed:
            continue
        log.info(f"[{v.name:<32}] {v.kind:>12} [{'PASSED' if v.passed else 'FAILED'}]")
        if v.kind in ("SIMILAR", "NOT_SIMILAR"):
            log.info(
                f"    {v.shape} {v.dtype}: cosine {v.cosine:.6f}, euclidean {v.euclidean:.6f}, "
                f"sqnr {v.sqnr:.3f}"
            )
        elif v.kind == "NOT_MATCH":
            log.info(f"    {v.shape} {v.dtype}: the reference has another number of elements")
    passed = sum(v.passed for v in verdicts)
    log.info(f"{len(verdicts)} compared, {passed} passed, {len(verdicts) - passed} failed")
    if verdicts:
        least = (min(getattr(v, k) for v in verdicts) for k in ("cosine", "euclidean", "sqnr"))
        log.info(f"min_similarity = ({', '.join(f'{x:.6g}' for x in least)})")
    log.info(f"Target    {titles[0]}")
    log.info(f"Reference {titles[1]}")
    good = bool(verdicts) and passed == len(verdicts)
    log.info(f"npz compare {'PASSED' if good else 'FAILED'}.")
    return good
