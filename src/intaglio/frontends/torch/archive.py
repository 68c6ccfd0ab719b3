"""Reader of the zip archives that PyTorch writes, with limits on sizes."""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path

from intaglio.errors import BadFile

_SLACK, _RATIO = 64 << 20, 20  # unpacked bytes: at most _SLACK + _RATIO * size of the file
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    ValueError,
    NotImplementedError,
    RuntimeError,
    KeyError,
)


class Archive:
    """The records of an archive by name, without the top folder."""

    def __init__(self, source: Path | bytes, what: str):
        self.what = what
        try:
            size = len(source) if isinstance(source, bytes) else source.stat().st_size
        except OSError as e:
            raise BadFile(f"cannot read {what}: {(e.strerror or str(e)).lower()}") from None
        try:
            self.zip = zipfile.ZipFile(io.BytesIO(source) if isinstance(source, bytes) else source)
            entries = self.zip.infolist()
        except _DAMAGE as e:
            raise BadFile(f"{what} is a damaged or truncated archive: {e}") from None
        whole = sum(e.file_size for e in entries)
        if whole > _SLACK + _RATIO * size:
            raise BadFile(
                f"{what} has {size} bytes and would unpack to {whole}; it is damaged or malicious"
            )
        names = [e.filename for e in entries if not e.is_dir()]
        first = names[0].split("/")[0] + "/" if names and "/" in names[0] else ""
        self.root = first if first and all(n.startswith(first) for n in names) else ""
        self.names = [n[len(self.root) :] for n in names]
        self._known = set(self.names)

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def read(self, name: str) -> bytes:
        """The bytes of a record."""
        if name not in self._known:
            raise BadFile(f"{self.what} lacks its record '{name[:200]}'; it is damaged")
        try:
            return self.zip.read(self.root + name)
        except _DAMAGE as e:
            raise BadFile(f"{self.what}: record '{name[:200]}' is damaged ({e})") from None

    def text(self, name: str) -> str:
        try:
            return self.read(name).decode()
        except UnicodeDecodeError as e:
            raise BadFile(f"{self.what}: record '{name[:200]}' is not text ({e.reason})") from None
