"""A model in two parts: the first runs here, the second on the server, or all of it here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import numpy as np

import intaglio
from intaglio.client.answer import Answer
from intaglio.client.server import Server, Unreachable
from intaglio.errors import BadFile
from intaglio.ir import Array
from intaglio.session import Session
from intaglio.split.parts_folder import ABOUT, EDGE, WHOLE

MOST_ABOUT = 1 << 20  # bytes of split.json


class SplitModel:
    """The folder that `intaglio split -o` wrote, with cloud.itg served under the server's model.

    While the link is down, whole.itg answers. Answers are equal if both sides compute alike.
    """

    def __init__(self, folder: str | Path, server: Server):
        place = Path(folder)
        about = _about(place / ABOUT)
        self.sent = about["sent"]
        self.server = server
        self._whole_on_server = self.sent is None and about["bytes"] > 0
        self._edge: Session | None = intaglio.open(place / EDGE) if self.sent else None
        self._whole = intaglio.open(place / WHOLE)

    def run(self, feeds: Mapping[str, Array]) -> Answer:
        """The answer of both parts; of the whole model on the device if the link is down."""
        if self._edge is None and not self._whole_on_server:
            return self._here(feeds, "the plan runs the whole model on the device")
        if self.server.down:
            return self._here(feeds, f"{self.server.url} did not answer a moment ago")
        sent = feeds if self._edge is None else self._edge.run(dict(feeds))
        try:
            return Answer(self.server.run(sent), "server", "the link is up")
        except Unreachable as e:
            return self._here(feeds, str(e))

    def _here(self, feeds: Mapping[str, Array], why: str) -> Answer:
        outputs = {n: np.array(a) for n, a in self._whole.run(dict(feeds)).items()}
        return Answer(outputs, "device", why)

    def close(self) -> None:
        for session in (self._edge, self._whole):
            if session is not None:
                session.close()
        self.server.close()

    def __enter__(self) -> SplitModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None
    ) -> None:
        self.close()


def _about(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            about = msgspec.json.decode(file.read(MOST_ABOUT))
        sent, size = about["sent"], about["bytes"]
        if not isinstance(sent, str | None) or not isinstance(size, int):
            raise TypeError
    except OSError as e:
        raise BadFile(f"{path}: {e.strerror}; `intaglio split -o FOLDER` writes it") from None
    except (msgspec.DecodeError, KeyError, TypeError):
        raise BadFile(f"{path} is no description of a split model") from None
    return {"sent": sent, "bytes": size}
