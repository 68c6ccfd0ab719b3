"""What `pip show nncase` and `importlib.metadata` find of the vendors' packages: their versions.

Scripts look up where a package is installed, or which version it has. A folder with the metadata
is made for the process and its children; nothing is installed.
"""

from __future__ import annotations

import atexit
import importlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

RKNN, NNCASE = "2.3.2", "2.11.0"  # versions whose interfaces the modules have
DISTRIBUTIONS = {
    "rknn-toolkit2": RKNN,
    "rknn-toolkit-lite2": RKNN,
    "nncase": NNCASE,
    "nncase-kpu": NNCASE,
}
SUMMARY = "modules of Intaglio under the names of this package, in this process only"

_FOLDERS: list[str] = []


def announce() -> None:
    """Let this process and those that it starts find the metadata."""
    if _FOLDERS:
        return
    try:
        folder = Path(tempfile.mkdtemp(prefix="intaglio-names-"))
        for name, version in DISTRIBUTIONS.items():
            place = folder / f"{name.replace('-', '_')}-{version}.dist-info"
            place.mkdir()
            fields = {"Metadata-Version": "2.1", "Name": name, "Version": version}
            text = "".join(f"{k}: {v}\n" for k, v in {**fields, "Summary": SUMMARY}.items())
            (place / "METADATA").write_text(text)
    except OSError:  # a full or read-only disk: scripts run, only pip does not find the names
        return
    _FOLDERS.append(str(folder))
    sys.path.append(str(folder))
    paths = [str(folder), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in paths if p)
    atexit.register(withdraw)


def withdraw() -> None:
    """Undo `announce`."""
    while _FOLDERS:
        folder = _FOLDERS.pop()
        if folder in sys.path:
            sys.path.remove(folder)
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        rest = [p for p in paths if p and p != folder]
        if rest:
            os.environ["PYTHONPATH"] = os.pathsep.join(rest)
        else:
            os.environ.pop("PYTHONPATH", None)
        shutil.rmtree(folder, ignore_errors=True)
    importlib.invalidate_caches()
    atexit.unregister(withdraw)
