"""The attributes of CompileOptions, checked when a Compiler is made."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from intaglio.compat.nncase.options import COMPILE, Untouched
from intaglio.compat.nncase.refusals import LOG
from intaglio.errors import BadInput, did_you_mean

TARGETS = ("cpu", "k230", "k510", "k210")
OLD_TARGETS = ("k210", "k510")  # nncase 1.x only
BUCKETS = "shape_bucket_options"  # attribute that users set
QUANT_TYPES = ("uint8", "int8", "int16")
INPUT_TYPES = {"uint8": "u8", "int8": "i8", "float32": "f32", "float": "f32", "default": None}


@dataclass(frozen=True)
class Preprocess:
    """What the model does with its inputs."""

    dtype: str | None  # u8, i8 or f32; None: u8 if the model is quantised
    shape: tuple[int, ...]  # empty: as the model
    bounds: tuple[float, float]  # values of the smallest and largest byte
    layout: str  # NHWC, NCHW, a permutation, or empty
    swap: bool
    pad_value: float
    mean: tuple[float, ...]
    std: tuple[float, ...]
    output_layout: str


@dataclass(frozen=True)
class Settings:
    """What a Compiler does."""

    target: str
    preprocess: Preprocess | None
    model_layout: str
    input_file: Path | None
    dump_ir: bool
    dump_asm: bool
    dump_dir: Path
    buckets: bool
    ranges: dict[str, tuple[int, int]]
    segments: int
    fixed: dict[str, int]
    quant_type: str
    w_quant_type: str
    output_type: str
    output_range: tuple[float, ...]
    dump_quant_error: bool

    @property
    def old(self) -> bool:
        """Whether the target is one of nncase 1.x."""
        return self.target in OLD_TARGETS

    @classmethod
    def of(cls, options: Any) -> Settings:
        """Check an options object; attributes that it lacks have their defaults."""

        def get(name: str) -> Any:
            found = getattr(options, name, COMPILE[name][0])
            inner = getattr(options, BUCKETS, None)  # a ShapeBucketOptions, as its guide shows it
            if inner is not None and name.startswith("shape_bucket_"):
                short = name.removeprefix("shape_bucket_")
                return getattr(inner, name, getattr(inner, short, found))
            return found

        if options is None or isinstance(options, str | bytes | int):
            raise BadInput(f"compile_options is {options!r}; give a CompileOptions object")
        for name in vars(options) if hasattr(options, "__dict__") else ():
            if name not in (*COMPILE, BUCKETS) and (hint := did_you_mean(name, COMPILE)):
                LOG.warning(f"CompileOptions has no attribute '{name}', which is ignored{hint}")
        target = target_named(get("target"))
        folder = get("dump_dir") or COMPILE["dump_dir"][0]
        for name in ("quant_type", "w_quant_type"):
            quant_type(name, get(name))
        output_type = str(get("output_type"))
        if output_type not in ("float32", "uint8", "int8"):
            raise BadInput(f"output_type is {output_type!r}; it is float32, uint8 or int8")
        return cls(
            target,
            _preprocess(get, target) if get("preprocess") else None,
            _layout("model_layout", get("model_layout")),
            Path(os.fspath(get("input_file"))) if get("input_file") else None,
            bool(get("dump_ir")),
            bool(get("dump_asm")),
            Path(os.fspath(folder)),
            bool(get("shape_bucket_enable")),
            _ranges(get("shape_bucket_range_info")),
            _count("shape_bucket_segments_count", get("shape_bucket_segments_count")),
            _fixed(get("shape_bucket_fix_var_map")),
            get("quant_type"),
            get("w_quant_type"),
            output_type,
            _numbers("output_range", get("output_range")),
            bool(get("dump_quant_error")),
        )


def target_named(given: Any) -> str:
    """The target that the user means; BadInput lists the targets."""
    known = ", ".join(TARGETS)
    if not isinstance(given, str) or not given:
        raise BadInput(f"target is {given!r}; it is one of {known}")
    if given.lower() in TARGETS:
        return given.lower()
    raise BadInput(f"target is '{given}'; it is one of {known}{did_you_mean(given, TARGETS)}")


def quant_type(name: str, given: Any) -> str:
    if given not in QUANT_TYPES:
        raise BadInput(f"{name} is {given!r}; it is one of {', '.join(QUANT_TYPES)}")
    return str(given)


def _preprocess(get: Any, target: str) -> Preprocess:
    kind = get("input_type")
    if isinstance(kind, Untouched) and target in OLD_TARGETS:
        kind = "default"
    if str(kind).lower() not in INPUT_TYPES:
        raise BadInput(f"input_type is {kind!r}; it is uint8, int8 or float32")
    mean, std = (_numbers(n, get(n)) for n in ("mean", "std"))
    if any(s == 0 for s in std):
        raise BadInput(f"std is {list(std)}; a 0 would divide by zero; give 1 to change nothing")
    if len(mean) != len(std) and 1 not in (len(mean), len(std)) and mean and std:
        raise BadInput(f"mean has {len(mean)} numbers and std {len(std)}; give as many")
    shape = get("input_shape")
    try:
        extents = tuple(int(d) for d in (shape if shape is not None else ()))
    except (TypeError, ValueError):
        raise BadInput(f"input_shape is {shape!r}; give whole numbers: [1, 3, 224, 224]") from None
    if any(d < 1 for d in extents):
        raise BadInput(f"input_shape is {shape!r}; extents are 1 or more")
    return Preprocess(
        INPUT_TYPES[str(kind).lower()],
        extents,
        _bounds(_numbers("input_range", get("input_range")), target, str(kind)),
        _layout("input_layout", get("input_layout") or ("NCHW" if target in OLD_TARGETS else "")),
        bool(get("swapRB")),
        float(get("letterbox_value") or 0),
        mean,
        std,
        _layout("output_layout", get("output_layout")),
    )


def _bounds(given: tuple[float, ...], target: str, kind: str) -> tuple[float, float]:
    if not given:
        return (0.0, 1.0) if target in OLD_TARGETS else (0.0, 255.0)
    if len(given) != 2 or given[0] >= given[1]:
        if kind.startswith("float"):
            return 0.0, 255.0  # it has no meaning there
        raise BadInput(f"input_range is {list(given)}; give two numbers, the smaller first: [0, 1]")
    return given[0], given[1]


def _layout(name: str, given: Any) -> str:
    """NHWC, NCHW, a permutation without blanks, or empty."""
    if given is None:
        return ""
    words = ",".join(map(str, given)) if isinstance(given, list | tuple) else str(given)
    words = words.replace(" ", "").upper()
    if words in ("", "NCHW", "NHWC"):
        return words
    try:
        perm = [int(p) for p in words.split(",")]
    except ValueError:
        perm = []
    if not perm or sorted(perm) != list(range(len(perm))):
        raise BadInput(f"{name} is {given!r}; it is NHWC, NCHW or a permutation such as '0,3,1,2'")
    return words


def _numbers(name: str, given: Any) -> tuple[float, ...]:
    try:
        found = np.atleast_1d(np.asarray([] if given is None else given, np.float64))
    except (TypeError, ValueError):
        raise BadInput(f"{name} is {given!r}; give a list of numbers") from None
    if found.ndim != 1 or not np.isfinite(found).all():
        raise BadInput(f"{name} is {given!r}; give a list of finite numbers")
    return tuple(found.tolist())


def _count(name: str, given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= 64:
        raise BadInput(f"{name} is {given!r}; give a number from 1 to 64")
    return given


def _ranges(given: Any) -> dict[str, tuple[int, int]]:
    if not isinstance(given, Mapping):
        raise BadInput(f"shape_bucket_range_info is {given!r}; give a dict: {{'seq': [1, 100]}}")
    found = {}
    for name, pair in given.items():
        try:
            low, high = (int(n) for n in pair)
        except (TypeError, ValueError):
            low = high = 0
        if not 1 <= low <= high:
            raise BadInput(
                f"shape_bucket_range_info['{name}'] is {pair!r}; give the smallest extent, at "
                "least 1, and the largest: [1, 100]"
            )
        found[str(name)] = low, high
    return found


def _fixed(given: Any) -> dict[str, int]:
    if not isinstance(given, Mapping):
        raise BadInput(f"shape_bucket_fix_var_map is {given!r}; give a dict: {{'batch': 1}}")
    for name, extent in given.items():
        if isinstance(extent, bool) or not isinstance(extent, int) or extent < 1:
            raise BadInput(
                f"shape_bucket_fix_var_map['{name}'] is {extent!r}; give an extent of 1 or more"
            )
    return {str(k): int(v) for k, v in given.items()}
