"""What `intaglio.open` takes as a package, and the words for everything else."""

from __future__ import annotations

import os
from pathlib import Path

from intaglio.arguments import described, file_path
from intaglio.errors import BadFile, BadInput, option
from intaglio.package import Package
from intaglio.package.keys import KeySource, PublicKeySource
from intaglio.runtime import Model


def is_package(source: object) -> bool:
    """Whether this is a package, or nothing that a session could be made of."""
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source[:4]) == b"ITG1"
    if not isinstance(source, str | os.PathLike):
        is_model = type(source).__name__ in ("Graph", "ModelProto") or hasattr(source, "state_dict")
        return not is_model
    try:
        with open(source, "rb") as file:
            return bool(file.read(4) == b"ITG1")
    except OSError:
        return os.fspath(source).endswith(".itg")  # the error is that of a missing package


def open_package(
    source: str | Path | bytes | Package,
    verify: bool,
    copy: bool,
    key: KeySource | None,
    public_key: PublicKeySource | None,
    weights: str | Path | None = None,
) -> Model:
    """The open package; BadFile says what a file is that is no package."""
    given = {"key": key, "public_key": public_key, "weights": weights}
    if isinstance(source, Package) and (names := [n for n, v in given.items() if v is not None]):
        raise BadInput(
            f"{option(names[0])} is for files; a Package is open; give it to Package.load"
        )
    if weights is not None:
        weights = file_path(option("weights"), weights, "the weight file, or the folder it is in")
    if isinstance(source, bytes | bytearray | memoryview | Package):
        return Model(source, verify, False, key, public_key, weights)
    if not isinstance(source, str | os.PathLike) or not os.fspath(source):
        raise BadInput(f"open takes a package, got {described(source)}; {_how_to_open(source)}")
    try:
        return Model(source, verify, copy, key, public_key, weights)
    except BadFile:
        _refuse_model_file(Path(source))
        raise


def _how_to_open(source: object) -> str:
    if type(source).__name__ in ("Graph", "ModelProto") or hasattr(source, "state_dict"):
        return (
            "compile it first: intaglio.open(intaglio.compile(model)); or intaglio.Session(model)"
        )
    return "give the path of a .itg file, its bytes or a Package"


def _refuse_model_file(path: Path) -> None:
    """BadFile if this is a folder, or a model that is not compiled yet."""
    from intaglio.frontends import sniff  # running a package does not need it
    from intaglio.frontends.model_source import named

    if path.is_dir():
        raise BadFile(f"'{path}' is a folder; give the path of a .itg file")
    try:
        kind = sniff(path)
    except BadFile:
        return
    if kind != "ONNX" or path.suffix == ".onnx":  # what is nothing else is taken for ONNX
        result = path.with_suffix(".itg").name
        raise BadFile(
            f"'{path}' is {named(kind)} model, not a package; compile it first: "
            f'intaglio.compile("{path}").save("{result}"); intaglio.Session("{path}") compiles too'
        )
