"""Push and pull: a manifest, a description as its config, and the files as layers."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

import intaglio
from intaglio import progress
from intaglio.errors import BadFile, BadInput
from intaglio.oci.reference import Reference
from intaglio.oci.registry import MANIFEST, Registry, file_digest

ARTIFACT = "application/vnd.intaglio.package.v1"
CONFIG = "application/vnd.intaglio.config.v1+json"
PACKAGE = "application/vnd.intaglio.package.v1.itg"
OTHER = "application/octet-stream"
TITLE = "org.opencontainers.image.title"
FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}\Z")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
MOST_FILES, MOST_BYTES = 64, 64 << 30


@dataclass(frozen=True)
class Pushed:
    """What a registry has now."""

    reference: str
    digest: str  # of the manifest: pull `reference@digest` to get exactly this
    sent: int  # bytes that the registry did not have yet


def push(
    files: Sequence[str | Path],
    reference: str,
    annotations: Mapping[str, str] | None = None,
    *,
    plain_http: bool | None = None,
) -> Pushed:
    """Push a package, and files that belong to it, such as weights. The first is the package.

    The same files give the same digest. Blobs that the registry has are not sent again.
    """
    where = Reference.parse(reference)
    if where.digest is not None:
        raise BadInput(f"{where} has a digest, which follows from the files; push to a tag")
    paths = [Path(f) for f in files]
    names = [p.name for p in paths]
    for name in names:
        if not FILE_NAME.match(name) or names.count(name) > 1:
            raise BadInput(f"'{name}' is no file name for an artifact, or is given twice")
    description = _description(paths[0])
    registry = Registry(where, plain_http)
    sent = 0
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        config.write_bytes(msgspec.json.encode(description, order="sorted"))
        layers = []
        for i, path in enumerate([config, *paths]):
            with progress.inside(f"pushing {path.name}", i, len(paths) + 1):
                size, digest = path.stat().st_size, file_digest(path)
                sent += size if registry.upload(path, digest, size) else 0
            kind = (CONFIG, PACKAGE)[i] if i < 2 else OTHER
            layers.append({"mediaType": kind, "digest": digest, "size": size})
            if i:
                layers[-1]["annotations"] = {TITLE: path.name}
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": ARTIFACT,
        "config": layers[0],
        "layers": layers[1:],
        "annotations": {TITLE: names[0], **(annotations or {})},
    }
    digest = registry.put_manifest(msgspec.json.encode(manifest, order="sorted"))
    return Pushed(str(where), digest, sent)


def _description(path: Path) -> dict[str, Any]:
    """The package's inputs, outputs and target, for those who look before they pull."""
    try:
        package = intaglio.Package.load(path)
    except IsADirectoryError:
        raise BadInput(f"{path} is a folder; give a package (.itg)") from None
    return {
        "name": package.meta.get("name", ""),
        "target": package.meta.get("target", ""),
        "compiler": package.meta.get("compiler", ""),
        "inputs": {n: str(t) for n, t in package.inputs.items()},
        "outputs": {n: str(t) for n, t in package.outputs.items()},
    }


@dataclass(frozen=True)
class Pulled:
    """The files of an artifact."""

    files: list[Path]  # the package first
    digest: str
    reference: str


def pull(reference: str, folder: str | Path, *, plain_http: bool | None = None) -> Pulled:
    """Write the files of an artifact into a folder: all of them, or none.

    Each has the digest that the manifest says, and the package opens. Files that are there are
    replaced by a rename.
    """
    registry = Registry(Reference.parse(reference), plain_http)
    manifest, digest = registry.manifest()
    layers = _layers(manifest, str(registry.reference))
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
        incoming = place / f".pull-{secrets.token_hex(6)}"
        incoming.mkdir()
    except OSError as e:
        raise BadInput(f"cannot write to '{folder}': {e.strerror}") from None
    try:
        for name, blob, size in layers:
            with progress.inside(f"pulling {name}"):
                registry.download(blob, size, incoming / name, lambda _: None)
        with intaglio.open(incoming / layers[0][0]):  # says what is wrong with it
            pass
        for name, _, _ in layers:
            os.replace(incoming / name, place / name)
    except OSError as e:
        raise BadInput(f"cannot write to '{folder}': {e.strerror}") from None
    finally:
        with suppress(OSError):
            shutil.rmtree(incoming)
    return Pulled([place / name for name, _, _ in layers], digest, str(registry.reference))


def _layers(manifest: Mapping[str, Any], reference: str) -> list[tuple[str, str, int]]:
    """Name, digest and size of every file; BadFile if a hostile manifest could do harm."""
    if manifest.get("artifactType") != ARTIFACT:
        kind = str(manifest.get("artifactType") or manifest.get("mediaType"))[:60]
        raise BadFile(
            f"{reference} is no package of Intaglio but {kind}; `intaglio push` makes one"
        )
    layers, total = manifest.get("layers"), 0
    found: list[tuple[str, str, int]] = []
    if not isinstance(layers, list) or not 0 < len(layers) <= MOST_FILES:
        raise BadFile(f"{reference}: its manifest has no list of 1 to {MOST_FILES} layers")
    for layer in layers:
        try:
            name, digest, size = layer["annotations"][TITLE], layer["digest"], layer["size"]
            good = bool(FILE_NAME.match(name) and DIGEST.match(digest))
            good = good and isinstance(size, int) and 0 <= size <= MOST_BYTES
        except (KeyError, TypeError):
            good = False
        if not good or any(name == n for n, _, _ in found):
            raise BadFile(f"{reference}: a layer has no plain file name, digest or size of its own")
        total += size
        found.append((name, digest, size))
    if total > MOST_BYTES:
        raise BadFile(f"{reference} has {total} bytes; at most {MOST_BYTES} are pulled")
    if layers[0].get("mediaType") != PACKAGE:
        raise BadFile(f"{reference}: its first layer is no package")
    return found
