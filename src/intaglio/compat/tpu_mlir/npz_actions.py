"""The actions of npz_tool on the arrays of files, but for the comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.array_files import read_npz, write_npz
from intaglio.compat.log import Log
from intaglio.compat.tpu_mlir.compare import Tolerance, compare, report
from intaglio.compat.tpu_mlir.option_table import Command, option, words
from intaglio.compat.tpu_mlir.tables import CalibrationTable
from intaglio.errors import BadInput
from intaglio.ir import Array

CALI_TEST = Command(
    "npz_tool cali_test",
    "Rounds arrays to int8 by the thresholds of a table and compares them with those given.",
    (
        option("npz_file", "the arrays, such as those of --test_result"),
        option("--calibration_table", "the table of run_calibration", required=True),
    ),
)
REQUANTISED = "requant.npz"
KINDS = {"int8": np.int8, "bf16": np.uint16, "uint16": np.uint16, "float32": np.float32}


def array_of(arrays: Mapping[str, Array], name: str, path: str) -> Array:
    """An array of a file; BadInput names those that it has."""
    if name not in arrays:
        raise BadInput(f"{path} has no array '{name}'; it has {', '.join(arrays) or 'none'}")
    return arrays[name]


def _integers(text: str, what: str) -> list[int]:
    try:
        return [int(w) for w in text.strip("[]() ").split(",")]
    except ValueError:
        raise BadInput(f"{what} is '{text}'; write whole numbers: 1,3,2") from None


# ---- what is printed -----------------------------------------------------------------------------
def _print_diff(rest: Sequence[str], log: Log) -> int:
    first, second = (array_of(read_npz(f), rest[2], f).ravel() for f in rest[:2])
    most = _integers(rest[3], "COUNT")[0] if len(rest) > 3 else first.size
    size = min(first.size, second.size)
    differ = np.flatnonzero(first[:size] != second[:size])
    for k in differ[:most]:
        print(f"{k}: {first[k]}, {second[k]}")
    print(f"{len(differ)} of {size} elements differ" if len(differ) else "no difference")
    return 0


def _dump(rest: Sequence[str], log: Log) -> int:
    arrays = read_npz(rest[0])
    if len(rest) < 2 or rest[1] == "--list":
        for name, a in arrays.items():
            print(f"{name} {a.dtype}{list(a.shape)}")
        return 0
    array = array_of(arrays, rest[1], rest[0])
    print(f"{rest[1]} {array.dtype}{list(array.shape)}")
    try:
        print(array[_slices(rest[2])] if len(rest) > 2 else array)
    except IndexError:
        raise BadInput(f"'{rest[1]}' {list(array.shape)} has no elements [{rest[2]}]") from None
    return 0


def _slices(text: str) -> tuple[Any, ...]:
    """An index such as 0,:,2:5 without evaluating it."""
    found: list[Any] = []
    for part in text.split(","):
        try:
            ends = [int(w) if w.strip() else None for w in part.split(":")]
        except ValueError:
            raise BadInput(f"the index is '{text}'; write it as 0,:,2:5") from None
        found.append(ends[0] if ":" not in part else slice(*ends))
    return tuple(found)


def _get_shape(rest: Sequence[str], log: Log) -> int:
    print(f"[{','.join(map(str, array_of(read_npz(rest[0]), rest[1], rest[0]).shape))}]")
    return 0


def _statistic(rest: Sequence[str], log: Log) -> int:
    for name, a in read_npz(rest[0]).items():
        x = np.asarray(a, np.float64)
        low, high, mean = (x.min(), x.max(), x.mean()) if x.size else (0.0, 0.0, 0.0)
        print(f"{name} {a.dtype}{list(a.shape)}: min {low:g}, max {high:g}, mean {mean:g}")
    return 0


def _check(rest: Sequence[str], log: Log) -> int:
    found = 0
    for name, a in read_npz(rest[0]).items():
        if a.dtype.kind == "f":
            for word, bad in (("NaN", np.isnan(a).any()), ("Inf", np.isinf(a).any())):
                if bad:
                    print(f"{word} in {name}:{a.shape}")
                    found += 1
    if not found:
        print("all numbers are finite")
    return 0


def _cali_test(rest: Sequence[str], log: Log) -> int:
    given = CALI_TEST.parse(rest, log)
    arrays = read_npz(given.npz_file)
    table = CalibrationTable.read(given.calibration_table)
    known = {n: a for n, a in arrays.items() if n in table.rows and a.dtype == np.float32}
    made = {}
    for name, a in known.items():
        step = np.float32(table.rows[name].threshold / 127)
        made[name] = (np.clip(np.rint(a / step), -128, 127) * step).astype(np.float32)
    write_npz(REQUANTISED, made)
    verdicts = compare(made, known, Tolerance.of("0.95,0.85"))
    return 0 if report(verdicts, log, (REQUANTISED, given.npz_file)) else 1


# ---- what is written -----------------------------------------------------------------------------
def _extract(rest: Sequence[str], log: Log) -> int:
    arrays = dict(read_npz(rest[0]))
    write_npz(rest[1], {n: array_of(arrays, n, rest[0]) for n in words(rest[2])})
    return 0


def _remove(rest: Sequence[str], log: Log) -> int:
    """In place as the vendor's tool, or into another file."""
    arrays = dict(read_npz(rest[0]))
    for name in words(rest[-1]):
        array_of(arrays, name, rest[0])
        del arrays[name]
    write_npz(rest[1] if len(rest) > 2 else rest[0], arrays)
    return 0


def _rename(rest: Sequence[str], log: Log) -> int:
    arrays = dict(read_npz(rest[0]))
    array_of(arrays, rest[1], rest[0])
    write_npz(rest[0], {rest[2] if n == rest[1] else n: a for n, a in arrays.items()})
    return 0


def _merge(rest: Sequence[str], log: Log) -> int:
    *files, output = rest
    write_npz(output, {n: a for f in files for n, a in read_npz(f).items()})
    return 0


def _insert(rest: Sequence[str], log: Log) -> int:
    write_npz(rest[1], dict(read_npz(rest[0])) | dict(read_npz(rest[1])))
    return 0


def _reshape(rest: Sequence[str], log: Log) -> int:
    arrays = dict(read_npz(rest[0]))
    a, shape = array_of(arrays, rest[1], rest[0]), _integers(rest[2], "the shape")
    try:
        arrays[rest[1]] = a.reshape(shape)
    except ValueError:
        raise BadInput(
            f"'{rest[1]}' has shape {list(a.shape)}, {a.size} elements; {shape} has not as many"
        ) from None
    write_npz(rest[0], arrays)
    return 0


def _permute(rest: Sequence[str], log: Log) -> int:
    arrays = dict(read_npz(rest[0]))
    order = _integers(rest[-1], "the order of axes")
    names = [rest[1]] if len(rest) > 2 else list(arrays)
    for name in names:
        a = array_of(arrays, name, rest[0])
        if sorted(order) != list(range(a.ndim)):
            raise BadInput(f"'{name}' has {a.ndim} axes, {order} is no order of them")
        arrays[name] = np.ascontiguousarray(a.transpose(order))
    write_npz(rest[0], arrays)
    return 0


def _widened(dtype: str) -> Callable[[Sequence[str], Log], int]:
    """uint16 holds the bits of floats."""

    def run(rest: Sequence[str], log: Log) -> int:
        kind = dtypes.numpy_of(dtype)
        made = {
            n: a.view(kind).astype(np.float32) if a.dtype == np.uint16 else a
            for n, a in read_npz(rest[0]).items()
        }
        write_npz(rest[1], made)
        return 0

    return run


def _narrowed(dtype: str) -> Callable[[Sequence[str], Log], int]:
    def run(rest: Sequence[str], log: Log) -> int:
        kind = dtypes.numpy_of(dtype)
        with np.errstate(over="ignore"):
            made = {
                n: a.astype(kind).view(np.uint16) if a.dtype == np.float32 else a
                for n, a in read_npz(rest[0]).items()
            }
        write_npz(rest[1], made)
        return 0

    return run


def _to_npy(rest: Sequence[str], log: Log) -> int:
    name = Path(rest[1].replace("/", "_")).name
    np.save(f"{name}.npy", array_of(read_npz(rest[0]), rest[1], rest[0]))
    return 0


def _to_bin(rest: Sequence[str], log: Log) -> int:
    a = array_of(read_npz(rest[0]), rest[1], rest[0])
    if len(rest) > 3:
        if rest[3] not in KINDS:
            raise BadInput(f"the type is '{rest[3]}'; it is one of {', '.join(KINDS)}")
        a = a.astype(KINDS[rest[3]])
    print(f"{rest[1]} {a.dtype}{list(a.shape)}")
    Path(rest[2]).write_bytes(a.tobytes())
    return 0


def _to_dat(rest: Sequence[str], log: Log) -> int:
    Path(rest[1]).write_bytes(b"".join(a.tobytes() for a in read_npz(rest[0]).values()))
    return 0


ACTIONS: dict[str, tuple[Callable[[Sequence[str], Log], int], int]] = {
    "print_diff": (_print_diff, 3),
    "dump": (_dump, 1),
    "get_shape": (_get_shape, 2),
    "statistic": (_statistic, 1),
    "check_nan_inf": (_check, 1),
    "cali_test": (_cali_test, 1),
    "extract": (_extract, 3),
    "remove": (_remove, 2),
    "insert": (_insert, 2),
    "rename": (_rename, 3),
    "merge": (_merge, 3),
    "reshape": (_reshape, 3),
    "permute": (_permute, 2),
    "bf16_to_fp32": (_widened("bf16"), 2),
    "fp16_to_fp32": (_widened("f16"), 2),
    "fp32_to_bf16": (_narrowed("bf16"), 2),
    "fp32_to_fp16": (_narrowed("f16"), 2),
    "to_npy": (_to_npy, 2),
    "to_bin": (_to_bin, 3),
    "to_dat": (_to_dat, 2),
}
