"""Transport to a registry by oras, with time-outs, and digests and sizes that are checked."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from intaglio.errors import BadFile, BadInput
from intaglio.extras import install_command
from intaglio.oci.reference import Reference

T = TypeVar("T")
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONNECT_S, READ_S = 10.0, 120.0
CHUNKED_ABOVE = 64 << 20  # bytes; smaller blobs are sent in one request
CHUNK = 16 << 20
READ = 1 << 20
MOST_MANIFEST = 4 << 20


def file_digest(path: Path) -> str:
    with open(path, "rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


class Registry:
    """The registry of a reference. Credentials are those of `docker login` and `oras login`."""

    def __init__(self, reference: Reference, plain_http: bool | None = None):
        try:
            from oras.container import Container
            from oras.provider import Registry as Oras
        except ImportError as e:
            raise BadInput(
                f"registries need the Python package '{e.name}'; install it: "
                f"{install_command('oci')}"
            ) from None
        import requests

        self.reference = reference
        self._scheme = (
            "http" if (reference.local if plain_http is None else plain_http) else "https"
        )
        with self._words():
            place = f"{self._scheme}://{reference.registry}/v2/"
            asks = requests.get(place, timeout=(CONNECT_S, READ_S)).headers
            basic = asks.get("WWW-Authenticate", "").lower().startswith("basic")
            self._oras = Oras(
                insecure=self._scheme == "http", auth_backend="basic" if basic else "token"
            )
            self._container = Container(str(reference))
            self._oras.auth.load_configs(self._container)
        if basic and not getattr(self._oras.auth, "_basic_auth", None):
            raise BadInput(
                f"registry {reference.registry} asks for a login and there is none; run "
                f"`docker login {reference.registry}` or `oras login {reference.registry}`"
            )
        session = self._oras.session
        send = session.request
        session.request = lambda *a, **k: send(*a, **{"timeout": (CONNECT_S, READ_S), **k})
        # oras would try again for two minutes, whatever the error is
        once = getattr(Oras.do_request, "__wrapped__", Oras.do_request)
        self._oras.do_request = partial(once, self._oras)

    @contextmanager
    def _words(self) -> Iterator[None]:
        """Errors of the transport as one line."""
        import requests

        try:
            yield
        except (requests.RequestException, ValueError) as e:
            words = _reason(e)
            tls = "" if self._scheme == "http" else "; --plain-http is for registries without TLS"
            raise BadInput(f"registry {self.reference.registry} fails: {words}{tls}") from None

    def _request(self, url: str, method: str = "GET", **more: Any) -> Any:
        with self._words():
            return self._oras.do_request(f"{self._scheme}://{url}", method, **more)

    def upload(self, path: Path, digest: str, size: int) -> bool:
        """Send a blob; False if the registry has it already."""
        layer = {"digest": digest, "size": size}
        with self._words():
            if self._oras.blob_exists(layer, self._container):
                return False
            answer = self._oras.upload_blob(
                str(path), self._container, layer, do_chunked=size > CHUNKED_ABOVE, chunk_size=CHUNK
            )
        self._expect(answer, (200, 201, 202), f"does not take {path.name}")
        return True

    def put_manifest(self, manifest: bytes) -> str:
        """Make the reference name this manifest; its digest."""
        answer = self._request(
            self._container.manifest_url(self.reference.tag or "latest"),
            "PUT",
            data=manifest,
            headers={"Content-Type": MANIFEST},
        )
        self._expect(answer, (200, 201, 202), f"does not take {self.reference}")
        return f"sha256:{hashlib.sha256(manifest).hexdigest()}"

    def manifest(self) -> tuple[dict[str, Any], str]:
        """The manifest of the reference, and its digest."""
        url = self._container.manifest_url(self.reference.version)
        answer = self._request(url, headers={"Accept": MANIFEST}, stream=True)
        self._expect(answer, (200,), f"has no {self.reference}")
        body = b"".join(self._pieces(answer, MOST_MANIFEST))
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        if self.reference.digest not in (None, digest):
            raise BadFile(f"{self.reference}: the registry sent another manifest, {digest}")
        try:
            found = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise BadFile(f"{self.reference}: its manifest is no JSON object")
        return found, digest

    def download(self, digest: str, size: int, to: Path, shown: Callable[[int], None]) -> None:
        """Write a blob to a new file; BadFile if it has another size or digest."""
        answer = self._request(self._container.get_blob_url(digest), stream=True)
        self._expect(answer, (200,), f"has no blob {digest}")
        hashed, done = hashlib.sha256(), 0
        with open(to, "xb") as file:
            for piece in self._pieces(answer, size):
                hashed.update(piece)
                file.write(piece)
                done += len(piece)
                shown(done)
            file.flush()
            os.fsync(file.fileno())
        if done != size or f"sha256:{hashed.hexdigest()}" != digest:
            raise BadFile(
                f"{self.reference}: the registry sent {done} bytes that are not those of {digest}"
            )

    def _pieces(self, answer: Any, most: int) -> Iterator[bytes]:
        total = 0
        with self._words():
            for piece in answer.iter_content(READ):
                total += len(piece)
                if total > most:
                    answer.close()
                    raise BadFile(f"{self.reference}: the registry sends more than {most} bytes")
                yield piece

    def _expect(self, answer: Any, statuses: tuple[int, ...], words: str) -> None:
        if answer.status_code in statuses:
            return
        raise BadInput(
            f"registry {self.reference.registry} {words}: status {answer.status_code}"
            f"{_errors(answer)}"
        )


def _errors(answer: Any) -> str:
    """The registry's own words."""
    try:
        found = msgspec.json.decode(answer.content[:MOST_MANIFEST])["errors"][0]
        return f", {found['code']}: {found['message']}"[:200]
    except (msgspec.DecodeError, KeyError, IndexError, TypeError):
        return ""


def _reason(error: Exception) -> str:
    reason: Any = error
    while getattr(reason, "args", None) and isinstance(reason.args[0], Exception):
        reason = reason.args[0]
    reason = getattr(reason, "reason", None) or reason
    return str(reason).rpartition(">: ")[2][:200].replace("\n", " ")
