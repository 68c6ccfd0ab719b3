"""npz_tool: compares, shows and changes .npz files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from intaglio.array_files import read_npz, write_npz
from intaglio.compat.log import Log
from intaglio.compat.tpu_mlir.compare import Tolerance, compare, report
from intaglio.compat.tpu_mlir.option_table import Command, flag, option, words
from intaglio.errors import BadInput, did_you_mean
from intaglio.ir import Array

COMPARE = Command(
    "npz_tool compare",
    "Compares the arrays of two files by name.",
    (
        option("target_file", "the arrays to compare"),
        option("ref_file", "the arrays that they should be"),
        option("--tolerance", "least cosine and Euclidean similarity", default="0.99,0.99"),
        option("--except --excepts", "arrays that are not compared", default="-"),
        option("--key", "the only array to compare", default=""),
        option("--save", "ignored: redirect the output into a file", default=""),
        flag("--full-array", "ignored: arrays are not printed"),
        flag("-v", "ignored: all figures are printed"),
        flag("-vv", "ignored: all figures are printed"),
        flag("-vvv", "ignored: all figures are printed"),
    ),
)
TOOL = Command(
    "npz_tool",
    "Compares, shows and changes .npz files.",
    (
        option("compare", "TARGET REFERENCE --tolerance COS,EUC; exit code 1 if it fails"),
        option("dump", "prints an array: FILE NAME [FIRST]"),
        option("get_shape", "prints the shape of an array: FILE NAME"),
        option("statistic", "prints the range and mean of all arrays: FILE"),
        option("extract", "copies some arrays: FILE OUTPUT NAMES"),
        option("remove", "copies all but some arrays: FILE OUTPUT NAMES"),
        option("rename", "renames an array in place: FILE OLD NEW"),
        option("merge", "joins the arrays of files: FILE FILE ... OUTPUT"),
        option("to_npy", "writes an array as NAME.npy: FILE NAME"),
        option("to_bin", "writes the bytes of an array: FILE NAME OUTPUT"),
        option("check_nan_inf", "names arrays with NaN or infinity: FILE"),
    ),
)
QUIET = ("-v", "-vv", "-vvv")


def main(arguments: Sequence[str], log: Log) -> int:
    """Run one action."""
    known = [o.names[0] for o in TOOL.options]
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: npz_tool ACTION FILE ...\n")
        print("\n".join(f"  {o.names[0]:<14} {o.effect}" for o in TOOL.options))
        return 0 if arguments else 2
    name, rest = arguments[0], list(arguments[1:])
    if name not in known:
        hint = did_you_mean(name, known) or f"; it is one of {', '.join(known)}"
        raise BadInput(f"no action is called '{name}'{hint}")
    if name == "compare":
        return _compare([w for w in rest if w not in QUIET], log)
    function, count = ACTIONS[name]
    if len(rest) < count:
        effect = next(o.effect for o in TOOL.options if o.names[0] == name)
        raise BadInput(f"{name}: {effect}")
    return function(rest, log)


def _compare(arguments: Sequence[str], log: Log) -> int:
    given = COMPARE.parse(arguments, log)
    target, reference = read_npz(given.target_file), dict(read_npz(given.ref_file))
    if given.key:
        reference = {given.key: _array(reference, given.key, given.ref_file)}
    least = Tolerance.of(given.tolerance)
    verdicts = compare(target, reference, least, words(getattr(given, "except")))
    return 0 if report(verdicts, log, (given.target_file, given.ref_file)) else 1


def _array(arrays: Mapping[str, Array], name: str, path: str) -> Array:
    if name not in arrays:
        raise BadInput(f"{path} has no array '{name}'; it has {', '.join(arrays) or 'none'}")
    return arrays[name]


def _dump(rest: Sequence[str], log: Log) -> int:
    array = _array(read_npz(rest[0]), rest[1], rest[0])
    print(f"{rest[1]} {array.dtype}{list(array.shape)}")
    first = int(rest[2]) if len(rest) > 2 and rest[2].isdigit() else array.size
    print(array.ravel()[:first])
    return 0


def _get_shape(rest: Sequence[str], log: Log) -> int:
    print(",".join(map(str, _array(read_npz(rest[0]), rest[1], rest[0]).shape)))
    return 0


def _statistic(rest: Sequence[str], log: Log) -> int:
    for name, a in read_npz(rest[0]).items():
        x = np.asarray(a, np.float64)
        low, high, mean = (x.min(), x.max(), x.mean()) if x.size else (0.0, 0.0, 0.0)
        print(f"{name} {a.dtype}{list(a.shape)}: min {low:g}, max {high:g}, mean {mean:g}")
    return 0


def _extract(rest: Sequence[str], log: Log) -> int:
    arrays = dict(read_npz(rest[0]))
    write_npz(rest[1], {n: _array(arrays, n, rest[0]) for n in words(rest[2])})
    return 0


def _remove(rest: Sequence[str], log: Log) -> int:
    arrays = dict(read_npz(rest[0]))
    for name in words(rest[2]):
        _array(arrays, name, rest[0])
        del arrays[name]
    write_npz(rest[1], arrays)
    return 0


def _rename(rest: Sequence[str], log: Log) -> int:
    arrays = dict(read_npz(rest[0]))
    _array(arrays, rest[1], rest[0])
    write_npz(rest[0], {rest[2] if n == rest[1] else n: a for n, a in arrays.items()})
    return 0


def _merge(rest: Sequence[str], log: Log) -> int:
    *files, output = rest
    write_npz(output, {n: a for f in files for n, a in read_npz(f).items()})
    return 0


def _to_npy(rest: Sequence[str], log: Log) -> int:
    name = Path(rest[1].replace("/", "_")).name
    np.save(f"{name}.npy", _array(read_npz(rest[0]), rest[1], rest[0]))
    return 0


def _to_bin(rest: Sequence[str], log: Log) -> int:
    Path(rest[2]).write_bytes(_array(read_npz(rest[0]), rest[1], rest[0]).tobytes())
    return 0


def _check(rest: Sequence[str], log: Log) -> int:
    bad = [
        n for n, a in read_npz(rest[0]).items() if a.dtype.kind == "f" and not np.isfinite(a).all()
    ]
    print(f"NaN or infinity in: {', '.join(bad)}" if bad else "all numbers are finite")
    return 1 if bad else 0


ACTIONS: dict[str, tuple[Callable[[Sequence[str], Log], int], int]] = {
    "dump": (_dump, 2),
    "get_shape": (_get_shape, 2),
    "statistic": (_statistic, 1),
    "extract": (_extract, 3),
    "remove": (_remove, 3),
    "rename": (_rename, 3),
    "merge": (_merge, 3),
    "to_npy": (_to_npy, 2),
    "to_bin": (_to_bin, 3),
    "check_nan_inf": (_check, 1),
}
