"""A small model on the device; the server is asked only if the device is unsure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

import numpy as np

import intaglio
from intaglio.client.answer import Answer
from intaglio.client.confidence import margins
from intaglio.client.server import Server, Unreachable
from intaglio.errors import BadInput
from intaglio.ir import Array
from intaglio.package import Package
from intaglio.session import Session

BURST = 10.0  # requests: the budget is kept over ten of them, or over 1 / budget


class Cascade:
    """Runs the device's model, and asks the server where the margin is small.

    `margin` is the least difference of the probabilities of the best two classes with which the
    device's answer stands. `budget` is the share of requests that may go to the server. If the
    server does not answer in its time, the device's answer stands. `output` names the scores
    [default: the model's only output]; `prepare` turns the device's inputs into the server's.
    """

    def __init__(
        self,
        device: str | Path | Package | Session,
        server: Server,
        *,
        margin: float,
        budget: float = 1.0,
        output: str | None = None,
        prepare: Callable[[Mapping[str, Array]], Mapping[str, Array]] | None = None,
    ):
        if not 0 <= margin <= 1.01:
            raise BadInput(f"margin is {margin}; it is a difference of probabilities, 0 to 1")
        if not 0 <= budget <= 1:
            raise BadInput(f"budget is {budget}; it is a share of the requests, 0 to 1")
        self._own = not isinstance(device, Session)
        self.session = device if isinstance(device, Session) else intaglio.open(device)
        self.server, self.margin, self.budget = server, margin, budget
        self._prepare = prepare
        self._credit = self._most_credit = max(1.0, BURST * budget)
        self._output = output

    def run(self, feeds: Mapping[str, Array]) -> Answer:
        """The device's answer, or the server's if the device is unsure."""
        outputs = {n: np.array(a) for n, a in self.session.run(dict(feeds)).items()}
        found = float(margins(self._scores(outputs)).min())
        self._credit = min(self._credit + self.budget, self._most_credit)
        if found >= self.margin:
            return Answer(outputs, "device", "its margin is large enough", found)
        if self._credit < 1:
            return Answer(outputs, "device", "the budget is used up", found)
        sent = feeds if self._prepare is None else self._prepare(feeds)
        try:
            answer = self.server.run(sent)
        except Unreachable as e:
            return Answer(outputs, "device", str(e), found)
        self._credit -= 1
        return Answer(answer, "server", "the device's margin is small", found)

    def _scores(self, outputs: Mapping[str, Array]) -> Array:
        if self._output is None and len(outputs) > 1:
            listed = ", ".join(outputs)
            raise BadInput(f"the model has outputs {listed}; name the one with scores: output=")
        name = self._output or next(iter(outputs))
        if name not in outputs:
            raise BadInput(f"the model has no output '{name}'; it has {', '.join(outputs)}")
        return outputs[name]

    def close(self) -> None:
        if self._own:
            self.session.close()
        self.server.close()

    def __enter__(self) -> Cascade:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None
    ) -> None:
        self.close()
