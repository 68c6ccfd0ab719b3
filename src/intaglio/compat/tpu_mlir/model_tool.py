"""model_tool and tpu_model: show, combine and extract bmodel and cvimodel files."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from intaglio.compat.log import Log
from intaglio.compat.tpu_mlir import model_tool_show, model_tool_write
from intaglio.compat.tpu_mlir.option_table import Command, option
from intaglio.errors import BadInput, did_you_mean

TOOL = Command(
    "model_tool",
    "Shows, combines and extracts bmodel and cvimodel files.",
    (
        option("--info", "chip, networks, inputs, outputs and memory; --all adds every tensor"),
        option("--chip", "the chip of a file"),
        option("--dynamic", "true or false: whether a network has open shapes"),
        option("--print", "the tables of a file as JSON"),
        option("--weight", "the place and size of the weights"),
        option("--update_weight", "refused: compile the model with its new weights"),
        option("--encrypt", "refused: encrypt a package by `intaglio encrypt`"),
        option("--decrypt", "refused: give the file that is not encrypted"),
        option("--extract", "writes every network and shape as a file of its own"),
        option("--refresh", "writes the file anew, in the current version"),
        option("--combine", "joins files into one; -o FILE"),
        option("--combine_dir", "joins the compilation.bmodel of folders; -o FOLDER"),
        option("--combine_coeff", "refused: every network keeps its own weights; use --combine"),
        option("--dump", "writes bytes of a file: FILE START SIZE OUTPUT"),
        option("--kernel_dump", "writes the firmware of a file; -o FILE"),
        option("--kernel_update", "puts a firmware into a file: FILE FIRMWARE"),
        option("--kernel_remove", "removes the firmware of a file"),
    ),
)


def main(arguments: Sequence[str], log: Log) -> int:
    """Run one action."""
    actions = {o.names[0]: o for o in TOOL.options}
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return 0 if arguments else 2
    name, rest = arguments[0], list(arguments[1:])
    if name not in actions:
        raise BadInput(
            f"no action is called '{name}'{did_you_mean(name, actions) or '; see --help'}"
        )
    if actions[name].state != "implemented":
        raise BadInput(f"{name}: {actions[name].effect.partition(': ')[2]}")
    output = None
    if "-o" in rest:
        at = rest.index("-o")
        if at + 1 >= len(rest):
            raise BadInput(f"{name}: -o needs a name")
        output = rest[at + 1]
        rest = rest[:at] + rest[at + 2 :]
    function, count, wants_output = ACTIONS[name]
    files = [w for w in rest if w != "--all"]
    if (count and len(files) != count) or not files or (wants_output and output is None):
        raise BadInput(f"{name}: {actions[name].effect}; see --help")
    function(files, output, "--all" in rest, log)
    return 0


def _usage() -> str:
    lines = ["usage: model_tool ACTION FILE ... [-o OUTPUT]", ""]
    return "\n".join(lines + [f"  {o.names[0]:<16} {o.effect}" for o in TOOL.options])


Action = Callable[[Sequence[str], str | None, bool, Log], None]
ACTIONS: dict[str, tuple[Action, int, bool]] = {  # function, number of files (0: any), needs -o
    "--info": (model_tool_show.info, 1, False),
    "--chip": (model_tool_show.chip, 1, False),
    "--dynamic": (model_tool_show.dynamic, 1, False),
    "--print": (model_tool_show.show, 1, False),
    "--weight": (model_tool_show.weight, 1, False),
    "--extract": (model_tool_write.extract, 1, False),
    "--refresh": (model_tool_write.refresh, 1, False),
    "--combine": (model_tool_write.combine, 0, True),
    "--combine_dir": (model_tool_write.combine_dir, 0, True),
    "--dump": (model_tool_write.dump, 4, False),
    "--kernel_dump": (model_tool_write.kernel_dump, 1, True),
    "--kernel_update": (model_tool_write.kernel_update, 2, False),
    "--kernel_remove": (model_tool_write.kernel_remove, 1, False),
}
