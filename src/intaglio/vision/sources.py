"""Where pictures come from: files, folders, patterns, videos and cameras."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intaglio.errors import BadFile, BadInput, Unsupported
from intaglio.quant.samples.images import ENDINGS, pillow

VIDEOS = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v")


@dataclass(frozen=True)
class Frame:
    """One picture: a name for messages and files, and the path or the Pillow image."""

    name: str
    content: Any


class Source:
    """Pictures in order. `many` says whether there can be more than one."""

    def __init__(self, specs: Sequence[str]):
        self.specs = specs
        self._files = {s: _files(s) for s in specs if not _is_stream(s)}
        streams = len(self._files) < len(specs)
        self.many = streams or sum(map(len, self._files.values())) > 1
        self.folder = any(os.path.isdir(s) for s in specs)

    def __iter__(self) -> Iterator[Frame]:
        for spec in self.specs:
            if spec in self._files:
                yield from (Frame(str(p), p) for p in self._files[spec])
            else:
                yield from _frames(spec)


def is_pictures(spec: str) -> bool:
    """Whether an argument names pictures rather than arrays."""
    if _is_stream(spec) or os.path.isdir(spec):
        return True
    names = [spec] if os.path.exists(spec) else [spec, *glob.glob(spec)]
    return any(Path(name).suffix.lower() in ENDINGS for name in names)


def _is_camera(spec: str) -> bool:
    return spec.isdecimal() and not os.path.exists(spec)


def _is_stream(spec: str) -> bool:
    return _is_camera(spec) or Path(spec).suffix.lower() in VIDEOS


def _files(spec: str) -> list[Path]:
    """The picture files of a path, a folder or a pattern, in natural order."""
    if os.path.isdir(spec):
        inside = [p for p in Path(spec).iterdir() if p.suffix.lower() in ENDINGS and p.is_file()]
        if not inside:
            raise BadInput(f"{spec}: no pictures in it ({', '.join(ENDINGS)})")
        return sorted(inside, key=_natural)
    if not os.path.exists(spec) and glob.has_magic(spec):
        found = [Path(p) for p in glob.glob(spec) if os.path.isfile(p)]
        if not found:
            raise BadFile(f"{spec}: no file fits the pattern")
        return sorted(found, key=_natural)
    if not os.path.exists(spec):
        raise BadFile(f"{spec}: no such file")
    return [Path(spec)]


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """A key that sorts frame2 before frame10."""
    parts = re.split(r"(\d+)", str(path))
    return [(0, int(p), "") if p.isdecimal() else (1, 0, p) for p in parts]


def _frames(spec: str) -> Iterator[Frame]:
    """The frames of a camera or a video file."""
    cv2 = _opencv(spec)
    if not _is_camera(spec) and not os.path.exists(spec):
        raise BadFile(f"{spec}: no such file")
    capture = cv2.VideoCapture(int(spec) if _is_camera(spec) else spec)
    try:
        if not capture.isOpened():
            what = f"camera {spec}" if _is_camera(spec) else spec
            raise BadFile(f"{what}: OpenCV cannot open it")
        stem = f"camera{spec}" if _is_camera(spec) else Path(spec).stem
        number = 0
        while True:
            there, pixels = capture.read()
            if not there:
                break
            image = pillow().fromarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB))
            yield Frame(f"{stem}_{number:06}.png", image)
            number += 1
    finally:
        capture.release()
    if not number:
        raise BadFile(f"{spec}: OpenCV reads no frame from it")


def _opencv(spec: str) -> Any:
    try:
        import cv2
    except ImportError:
        what = f"camera {spec}" if _is_camera(spec) else spec
        raise Unsupported(
            f"{what}: cameras and videos need OpenCV, which is not installed; "
            "pip install opencv-python-headless"
        ) from None
    return cv2
