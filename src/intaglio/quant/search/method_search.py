"""Choose the range method of the tensors (minmax, moving, percentile, mse) by output error.

Every choice is measured on the model's outputs, part by part, with a `Trial`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from intaglio import progress
from intaglio.errors import BadInput
from intaglio.files import write_atomically
from intaglio.ir import Array, Graph
from intaglio.quant.placement.formats import USUAL, Formats
from intaglio.quant.placement.place import Placement
from intaglio.quant.placement.scheme import TensorScheme
from intaglio.quant.search.output_error import Reference
from intaglio.quant.search.policy import POLICY, Policy
from intaglio.quant.search.trial import Errors, Trial, total

METHODS = ("minmax", "moving", "percentile", "mse")

Schemes = Mapping[str, TensorScheme]
Make = Callable[[Mapping[str, str]], dict[str, TensorScheme]]  # schemes for a choice of methods


class Cache:
    """Errors of earlier trials in a file, so that an interrupted search can continue."""

    def __init__(self, path: str | Path, subject: str):
        self.path = Path(path)
        self.weights = ""  # how weights were rounded, if not as at first
        self.every = _searches(self.path)
        name = hashlib.sha256(subject.encode()).hexdigest()[:16]
        self.known: dict[str, Errors] = self.every.setdefault(name, {})

    def key(self, schemes: Schemes) -> str:
        each = sorted((n, t.dtype, t.scale, t.zero) for n, t in schemes.items())
        text = self.weights + repr(each)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def errors(
        self, trial: Trial, schemes: Schemes, fine: float = 0.0, only: Sequence[int] | None = None
    ) -> Errors:
        """The errors of a trial, from the cache if it was run before."""
        key = self.key(schemes) + ("" if only is None else f" {list(only)}")
        return self.found(key, lambda: trial.errors(schemes, fine, only))

    def found(self, key: str, make: Callable[[], Errors]) -> Errors:
        """The cached errors for this key; if there are none, make and save them."""
        if key not in self.known:
            self.known[key] = make()
            write_atomically(self.path, json.dumps({"searches": self.every}).encode())
        return self.known[key]


def _searches(path: Path) -> dict[str, dict[str, Errors]]:
    """The searches in a file; BadInput if it is another kind of file."""
    if not path.exists():
        return {}
    if not path.is_file():
        raise BadInput(f"{path} is no regular file; give another name")
    try:
        stored = json.loads(path.read_text())
        return {name: dict(errors) for name, errors in stored["searches"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise BadInput(f"{path} holds no search; remove it or give another name") from None


class Search:
    """Trials on one model and placement."""

    def __init__(
        self,
        graph: Graph,
        placement: Placement,
        trial: Trial,
        make: Make,
        cache: Cache | None = None,
        fixed: Collection[str] = (),
        how: Formats = USUAL,
        policy: Policy = POLICY,
    ):
        """`fixed` names tensors and layers that the user fixed."""
        self.how, self.policy = how, policy
        self.fixed = set(fixed)
        self.graph, self.placement, self.trial = graph, placement, trial
        self.make, self.cache = make, cache
        self.count = 0
        self.expect("trying settings")
        self.trial_without: Callable[[Collection[str]], Trial] | None = None

    def expect(self, activity: str, most: int | None = None) -> None:
        """Name the trials that follow; there are at most `most`."""
        self.activity, self.most, self.before = activity, most, self.count

    def _tell(self) -> None:
        """Count a trial and report progress."""
        done = self.count - self.before
        most = None if self.most is None or done >= self.most else self.most
        progress.report(self.activity, done, most, at_most=True)
        self.count += 1

    def errors(
        self, schemes: Schemes, fine: float = 0.0, only: Sequence[int] | None = None
    ) -> Errors:
        """The output errors on all samples, or on these `only`; a few samples are enough if their
        errors are far below `fine`."""
        self._tell()
        if self.cache:
            return self.cache.errors(self.trial, schemes, fine, only)
        return self.trial.errors(schemes, fine, only)

    def errors_without(self, schemes: Schemes, layers: Collection[str]) -> Errors:
        """The output errors if these layers keep their float weights."""
        if self.trial_without is None or not layers:
            return self.errors(schemes)
        self._tell()
        make = self.trial_without

        def tried() -> Errors:
            with make(layers) as trial:
                return trial.errors(schemes)

        if self.cache is None:
            return tried()
        return self.cache.found(f"{self.cache.key(schemes)} {sorted(layers)}", tried)

    # ---- ranges ----------------------------------------------------------------------------------
    def choose_methods(
        self, allowed: float = 0.0, methods: Sequence[str] = METHODS
    ) -> dict[str, str]:
        """The range method of each tensor: the one with the least output error for all, then for
        blocks of tensors, until no output errs by more than `allowed`.

        The first method clips nothing; if its error is small, no other is tried.
        """
        names = self.trial.names
        most = len(methods) + (len(methods) - 1) * self.policy.method_blocks
        self.expect("trying range methods", most)
        tried: dict[str, Errors] = {}
        for m in methods:
            fine = self.policy.method_skip if m == methods[0] else 0.0
            tried[m] = self.errors(self.make(dict.fromkeys(names, m)), fine)
            if total(tried[m]) < fine:
                return dict.fromkeys(names, m)
        ranked = sorted(methods, key=lambda m: total(tried[m]))
        return self._by_block(ranked, tried[ranked[0]], allowed)

    def _by_block(self, ranked: Sequence[str], errors: Errors, allowed: float) -> dict[str, str]:
        """The first of the ranked methods for all tensors, another one for blocks that gain by it.

        Blocks are tried on the samples that err most; a gain must hold on all samples.
        """
        names = self.trial.names
        chosen, count = dict.fromkeys(names, ranked[0]), min(self.policy.method_blocks, len(names))
        if max(errors.values()) <= allowed or not count:
            return chosen
        some = self.trial.hardest(self.make(chosen), self.policy.sensitivity_samples)
        there = self.errors(self.make(chosen), only=some)
        blocks = np.array_split(np.array(names), count)
        for block, m in itertools.product(blocks, ranked[1:]):
            other = chosen | {str(n): m for n in block}
            tried = self.errors(self.make(other), only=some)
            if total(tried) >= total(there):
                continue
            after = self.errors(self.make(other))
            if total(after) < total(errors):
                chosen, errors, there = other, after, tried
                if max(errors.values()) <= allowed:
                    break
        return chosen


def subject(
    graph: Graph, reference: Reference, stored: Iterable[tuple[Array, Any, Array | None]] = ()
) -> str:
    """The identity of a search for the cache: model, rounded weights and float outputs.

    `stored` are the rounded weights with their schemes and corrections: results for other
    rounding options are not valid.
    """
    parts = [str(graph)]
    for integers, scheme, shift in stored:
        of = [integers, *([] if shift is None else [shift])]
        parts.append(f"{scheme} {[zlib.crc32(np.ascontiguousarray(a).tobytes()) for a in of]}")
    parts += [str(zlib.crc32(v.data.tobytes())) for v in graph.values() if v.data is not None]
    parts += [str(zlib.crc32(a.tobytes())) for o in reference.outputs for a in o.values()]
    return "\n".join(parts)
