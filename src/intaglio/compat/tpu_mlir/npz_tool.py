"""npz_tool: compares, shows and changes .npz files."""

from __future__ import annotations

from collections.abc import Sequence

from intaglio.array_files import read_npz
from intaglio.compat.log import Log
from intaglio.compat.tpu_mlir.compare import Tolerance, compare, report
from intaglio.compat.tpu_mlir.npz_actions import ACTIONS, array_of
from intaglio.compat.tpu_mlir.option_table import Command, flag, option, words
from intaglio.errors import BadInput, did_you_mean
from intaglio.files import write_atomically

COMPARE = Command(
    "npz_tool compare",
    "Compares the arrays of two files by name.",
    (
        option("target_file", "the arrays to compare"),
        option("ref_file", "the arrays that they should be"),
        option("--tolerance", "least cosine and Euclidean similarity", default="0.99,0.99"),
        option("--except --excepts", "arrays that are not compared", default="-"),
        option("--key -k", "the only array to compare", default=""),
        option("--save -s", "writes the figures of all arrays as CSV", default=""),
        flag("--only_key", "prints the common names and those that one file lacks"),
        flag("--forall -a", "ignored: all arrays are printed"),
        flag("--full-array", "ignored: arrays are printed by print_diff"),
        flag("--fuzzy_match", "ignored: arrays are compared by name"),
        flag("--stats_int8_tensor", "ignored: statistic prints ranges"),
        option("--int8_tensor_close", "ignored: the tolerance holds for bytes too", int, default=1),
        option("--per_axis_compare", "ignored: whole arrays are compared", int, default=-1),
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
        option("print_diff", "prints elements that differ: FILE OTHER NAME [COUNT]"),
        option("visualize_diff", "refused: `intaglio compare` draws them"),
        option(
            "dump", "prints an array, all names without one: FILE [NAME [INDEX]], such as 0,:,2:5"
        ),
        option("extract", "copies some arrays: FILE OUTPUT NAMES"),
        option(
            "remove", "removes arrays in place: FILE NAMES; or copies the others: FILE OUTPUT NAMES"
        ),
        option("insert", "copies all arrays into another file: FILE OTHER"),
        option("merge", "joins the arrays of files: FILE FILE ... OUTPUT"),
        option("rename", "renames an array in place: FILE OLD NEW"),
        option("reshape", "gives an array another shape in place: FILE NAME 1,10"),
        option("permute", "permutes the axes of arrays in place: FILE [NAME] 0,2,3,1"),
        option("bf16_to_fp32", "arrays of uint16 are bf16 and become f32: FILE OUTPUT"),
        option("fp16_to_fp32", "arrays of uint16 are f16 and become f32: FILE OUTPUT"),
        option("fp32_to_bf16", "arrays of f32 become bf16, as uint16: FILE OUTPUT"),
        option("fp32_to_fp16", "arrays of f32 become f16, as uint16: FILE OUTPUT"),
        option("get_shape", "prints the shape of an array: FILE NAME"),
        option("to_bin", "writes the bytes of an array: FILE NAME OUTPUT [int8|bf16|float32]"),
        option("to_dat", "writes the bytes of all arrays: FILE OUTPUT"),
        option("to_npy", "writes an array as NAME.npy: FILE NAME"),
        option("cali_test", "rounds arrays by a table and compares: FILE --calibration_table T"),
        option("statistic", "prints the range and mean of all arrays: FILE"),
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
    effect = next(o.effect for o in TOOL.options if o.names[0] == name)
    if name not in ACTIONS:
        raise BadInput(f"{name} {effect}")
    function, count = ACTIONS[name]
    if len(rest) < count:
        raise BadInput(f"{name}: {effect}")
    return function(rest, log)


def _compare(arguments: Sequence[str], log: Log) -> int:
    given = COMPARE.parse(arguments, log)
    target, reference = read_npz(given.target_file), dict(read_npz(given.ref_file))
    if given.key:
        reference = {given.key: array_of(reference, given.key, given.ref_file)}
    if given.only_key:
        ours, theirs = set(target), set(reference)
        groups = {
            "common": ours & theirs,
            f"only in {given.target_file}": ours - theirs,
            f"only in {given.ref_file}": theirs - ours,
        }
        for title, names in groups.items():
            print(f"{title}: {', '.join(sorted(names)) or 'none'}")
        return 0
    least = Tolerance.of(given.tolerance)
    verdicts = compare(target, reference, least, words(getattr(given, "except")))
    if given.save:
        rows = [f"{v.name},{v.cosine:.6f},{v.euclidean:.6f},{v.passed}" for v in verdicts]
        write_atomically(
            given.save, "\n".join(["name,cosine,euclidean,passed", *rows, ""]).encode()
        )
    return 0 if report(verdicts, log, (given.target_file, given.ref_file)) else 1
