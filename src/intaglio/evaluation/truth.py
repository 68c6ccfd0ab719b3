"""Labels of pictures: classes, boxes, masks or texts, from the usual layouts of datasets."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from intaglio.errors import BadFile, BadInput
from intaglio.evaluation.class_names import dataset_names
from intaglio.quant.samples.images import ENDINGS
from intaglio.vision.labels import read_labels

MASKS = (".png", ".bmp")
LEAST_POLYGON = 6  # numbers of a polygon


@dataclass(frozen=True)
class Boxes:
    """True boxes of a picture: class, left, top, right, bottom; in shares if `relative`."""

    rows: list[tuple[int, tuple[float, float, float, float]]]
    crowds: list[bool] = field(default_factory=list)
    relative: bool = False
    outlines: list[Any] = field(default_factory=list)  # polygons or run lengths, None without


@dataclass(frozen=True)
class Truth:
    """Pictures and their labels."""

    kind: str  # "class", "boxes", "mask" or "text"
    labels: dict[Path, Any]
    names: list[str] | None = None


def pictures_below(folder: Path) -> list[Path]:
    """Every picture below a folder; BadInput without any."""
    if not folder.exists():
        raise BadInput(f"{folder}: no such folder; give one with pictures")
    found = sorted(p for p in folder.rglob("*") if p.suffix.lower() in ENDINGS and p.is_file())
    if not found:
        raise BadInput(f"{folder}: no pictures in it ({', '.join(ENDINGS)})")
    return found


def read_truth(kind: str, folder: str | Path, labels: str | Path | None) -> Truth:
    """The labels of a folder's pictures; `labels` is a file or folder if they lie elsewhere."""
    root = Path(folder)
    pictures = pictures_below(root)
    given = Path(labels) if labels else None
    if given is not None and not given.exists():
        raise BadInput(f"{given}: no such file or folder; it is to hold the labels")
    reader = {"class": _classes, "boxes": _boxes, "mask": _masks, "text": _texts}[kind]
    found, names = reader(root, pictures, given)
    if not found:
        raise BadInput(f"{root}: no picture has a label; {WHERE[kind]}")
    return Truth(kind, found, names)


WHERE = {
    "class": "put pictures into a folder for each class, or add labels.csv (file,class)",
    "boxes": "give annotations.json of COCO, or .txt files of YOLO in labels/, as the truth",
    "mask": "give a folder of masks (.png) with the pictures' names, as the truth",
    "text": "add labels.csv with file,text",
}
Found = tuple[dict[Path, Any], list[str] | None]


def _rows(root: Path, given: Path | None, what: str) -> dict[str, str] | None:
    path = given if given and given.is_file() else root / "labels.csv"
    if not path.is_file():
        return None
    rows: dict[str, str] = {}
    try:
        with open(path, encoding="utf-8-sig", newline="") as f:
            for n, row in enumerate(csv.reader(f), 1):
                if row and len(row) < 2:
                    raise BadFile(f"{path}, line {n}: {row[0]!r} has no label; write file,{what}")
                if row:
                    rows[row[0].strip()] = ",".join(row[1:]).strip()
    except UnicodeDecodeError:
        raise BadFile(f"{path}: not a text file; write file,{what} on each line") from None
    return rows


def _classes(root: Path, pictures: list[Path], given: Path | None) -> Found:
    rows = _rows(root, given, "class")
    if rows is not None:
        known = {p.name: p for p in pictures}
        found: dict[Path, Any] = {}
        for name, label in rows.items():
            if Path(name).name in known:
                if not label.isdecimal():
                    if not found and name == next(iter(rows)):
                        continue  # a title
                    raise BadFile(f"labels.csv: class of {name} is {label!r}; give its number")
                found[known[Path(name).name]] = int(label)
        return found, None
    folders = sorted({p.parent.name for p in pictures if p.parent != root})
    return {p: folders.index(p.parent.name) for p in pictures if p.parent != root}, folders or None


def _texts(root: Path, pictures: list[Path], given: Path | None) -> Found:
    rows = _rows(root, given, "text") or {}
    known = {p.name: p for p in pictures}
    return {known[Path(n).name]: t for n, t in rows.items() if Path(n).name in known}, None


def _masks(root: Path, pictures: list[Path], given: Path | None) -> Found:
    folder = given or root / "masks"
    masks = {p.stem: p for p in folder.rglob("*") if p.suffix.lower() in MASKS}
    return {p: masks[p.stem] for p in pictures if p.stem in masks and p != masks[p.stem]}, None


def _boxes(root: Path, pictures: list[Path], given: Path | None) -> Found:
    if given is not None and given.suffix == ".json":
        return _coco(given, pictures)
    found: dict[Path, Any] = {}
    for p in pictures:
        path = _yolo_file(p, given)
        if path is not None and path.is_file():
            found[p] = _yolo(path)
    if found:  # as the format has it: a picture without a file has no objects
        found = {p: found.get(p) or Boxes([], relative=True) for p in pictures}
    return found, dataset_names([root, given]) if found else None


def _yolo_file(picture: Path, given: Path | None) -> Path | None:
    """The labels of a picture: in `given`, in labels/ beside images/, or beside the picture."""
    if given is not None:
        return next(iter(given.rglob(f"{picture.stem}.txt")), None)
    parts = list(picture.parts)
    if "images" in parts:
        parts[len(parts) - 1 - parts[::-1].index("images")] = "labels"
    return Path(*parts).with_suffix(".txt")


def _yolo(path: Path) -> Boxes:
    """Lines of class and box, or of class and the corners of a polygon (three or more)."""
    rows: list[tuple[int, tuple[float, float, float, float]]] = []
    outlines: list[Any] = []
    for n, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip():
            continue
        try:
            label, *each = line.split()
            numbers = [float(x) for x in each]
            if len(numbers) >= LEAST_POLYGON and len(numbers) % 2 == 0:
                xs, ys = numbers[::2], numbers[1::2]
                box = min(xs), min(ys), max(xs), max(ys)
            else:
                x, y, w, h = numbers[:4]
                box = x - w / 2, y - h / 2, x + w / 2, y + h / 2
            rows.append((int(label), box))
            outlines.append([numbers] if len(numbers) > len(box) + 1 else None)
        except ValueError:
            rule = "a line has class, centre x, centre y, width, height, or class and a polygon"
            raise BadFile(f"{path}, line {n}: {line.strip()[:60]!r}; {rule}") from None
    return Boxes(rows, relative=True, outlines=outlines)


def _coco(path: Path, pictures: list[Path]) -> Found:
    """Annotations of COCO; classes are numbered in the order of their identifiers."""
    try:
        content = json.loads(path.read_text())
        categories = sorted(content["categories"], key=lambda c: c["id"])
        index = {c["id"]: i for i, c in enumerate(categories)}
        files = {i["id"]: Path(i["file_name"]).name for i in content["images"]}
        by_file: dict[str, list[Mapping[str, Any]]] = {name: [] for name in files.values()}
        for a in content["annotations"]:
            by_file[files[a["image_id"]]].append(a)
        found: dict[Path, Any] = {}
        for p in pictures:
            if p.name in by_file:
                rows, crowds, outlines = [], [], []
                for a in by_file[p.name]:
                    x, y, w, h = map(float, a["bbox"])
                    rows.append((index[a["category_id"]], (x, y, x + w, y + h)))
                    crowds.append(bool(a.get("iscrowd", 0)))
                    outlines.append(a.get("segmentation") or None)
                found[p] = Boxes(rows, crowds, outlines=outlines)
        return found, [str(c.get("name", i)) for i, c in enumerate(categories)]
    except (ValueError, KeyError, TypeError) as e:
        raise BadFile(
            f"{path}: not an annotation file of COCO ({e!r}); give instances_*.json"
        ) from None


def read_names(path: str | Path | None) -> list[str] | None:
    return None if path is None else read_labels(path)
