"""Names of classes in the zip archive that TFLite's metadata tools append to a model."""

from __future__ import annotations

import io
import zipfile
import zlib

END = b"PK\x05\x06"  # the last record of an archive
LONGEST = 1 << 20  # bytes of a list of names
MOST = 100_000  # names
UNKNOWN = "???"  # of a class that is not used


def labels(data: bytes) -> list[str] | None:
    """The names in the only list of labels of the archive; None if there is none."""
    if END not in data[-(1 << 16) - 22 :]:
        return None
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            found = [f for f in archive.infolist() if _is_list(f.filename)]
            if len(found) != 1 or found[0].file_size > LONGEST:
                return None
            with archive.open(found[0]) as file:
                text = file.read(LONGEST).decode("utf-8-sig")
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, RuntimeError, NotImplementedError):
        return None  # what follows the model may be anything
    names = [line.strip() for line in text.splitlines()]
    while names and not names[-1]:
        names.pop()
    return ["" if n == UNKNOWN else n for n in names[:MOST]] or None


def _is_list(name: str) -> bool:
    return name.endswith(".txt") and "label" in name.lower()
