"""Intaglio by the same protocol: `compile`, then `open` the file."""

from __future__ import annotations

from pathlib import Path

from benchmarks.models import Case
from benchmarks.peers import Array

ENGINE = "intaglio.session"
PACKAGES = ()
PRECISIONS = ("f32", "bf16")


def convert(case: Case, folder: Path, threads: int, precision: str) -> Path:
    import intaglio

    file = folder / "model.itg"
    intaglio.compile(case.path, dims=case.dims, precision=precision).save(file)
    return file


class Runner:
    """`Session.run` as a user calls it."""

    def __init__(self, file: Path, feeds: dict[str, Array], threads: int, precision: str) -> None:
        import intaglio

        self.session, self.feeds = intaglio.open(file, threads=threads), feeds

    def run(self) -> None:
        self.made = self.session.run(self.feeds)

    def outputs(self) -> list[Array]:
        return list(self.made.values())


load = Runner
