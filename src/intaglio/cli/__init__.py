"""The `intaglio` command. Each sub-command has its own file; `cli.errors` ends it on errors."""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import Any

import click

from intaglio.cli.errors import Interrupted, ended, one_line
from intaglio.cli.flags import with_flags
from intaglio.errors import IntaglioError, did_you_mean
from intaglio.startup import restore_interrupt

COMMANDS = {  # name -> line of the group's help; the module is imported when the command is called
    "compile": "Compile a model into a package (.itg) for a CPU or chip.",
    "deploy": "Write a C project that runs an 8-bit model on a board.",
    "run": "Run a package or a model on arrays.",
    "optimize": "Optimise a model and write it as ONNX.",
    "edit": "Cut, change or rename parts of an ONNX model, and check the result.",
    "compress": "Prune, sparsify, distil and train a model by a recipe; needs PyTorch.",
    "quantize": "Quantise a float model to integers, with sample inputs.",
    "inspect": "Show inputs, outputs, operations and memory of a model or package.",
    "bench": "Measure latency on this machine, in total or per layer.",
    "profile": "Time every step on this machine, against its measured peak.",
    "stats": "Count parameters, MACs and memory access; compare known networks.",
    "eval": "Measure accuracy on labelled pictures: top-1, mAP, IoU, CER.",
    "compare": "Compare two models tensor by tensor, and name the inaccurate layer.",
    "report": "Write one HTML page: graph, accuracy, speed, memory, partition.",
    "ui": "Serve a page about a model: try pictures, change precisions by layer.",
    "perf": "Predict the speed of a model on a chip, layer by layer.",
    "memory": "Show how a model uses the memories of a chip.",
    "matmul": "Predict a matrix product on a chip: limits, layouts, time.",
    "split": "Cut a model between a device and a server, at the best tensor.",
    "serve": "Serve models over HTTP and gRPC (Open Inference Protocol).",
    "publish": "Put a package into a model repository as a new version.",
    "gateway": "Write the HAProxy configuration in front of servers.",
    "rollout": "Give a new version a share of the traffic; take it back if it is worse.",
    "kserve": "Write manifests for KServe, on Kubernetes.",
    "push": "Push a package to a container registry, as an OCI artifact.",
    "pull": "Pull a package from a container registry.",
    "update": "Give a package the weights of another training.",
    "weights": "Move weights out of a package, share them, or bring them back.",
    "encrypt": "Encrypt a package, so that only its key opens it.",
    "sign": "Sign a package, so that altered ones are refused.",
    "keygen": "Make a key to encrypt packages, or a pair to sign them.",
    "compat": "Run command lines and scripts written for chip vendors' tools.",
    "targets": "List the supported chips, or show one with its sources.",
}
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
EPILOG = """\b
Start here:
  intaglio inspect model.onnx                 inputs, outputs, operations
  intaglio compile model.onnx -o model.itg    a package for this machine's CPU
  intaglio quantize model.onnx --data images/ --std 255    an int8 package
  intaglio run model.itg a.jpg --draw b.png   boxes or classes of a picture
  intaglio run model.itg x=x.npy -o out.npz   print and save the outputs
  intaglio bench model.itg --layers           time of every layer
  intaglio targets                            supported chips
  intaglio perf model.int8.onnx --chips rk3588,k230        predicted speeds
"""


class _Group(click.Group):
    """Loads a sub-command only when it is called, so that `intaglio --help` is instant.

    Errors and warnings of the library name options as keyword arguments; here they become flags.
    """

    def invoke(self, ctx: click.Context) -> Any:
        def words(message: object) -> str:
            name = ctx.invoked_subcommand
            command = self.get_command(ctx, name) if name else None
            return with_flags(str(message), command) if command else str(message)

        def show(message: Warning | str, *place: Any, **line: Any) -> None:
            print(one_line(f"intaglio: warning: {words(message)}"), file=sys.stderr)

        with warnings.catch_warnings():
            warnings.showwarning = show
            try:
                return super().invoke(ctx)
            except IntaglioError as e:
                e.args = (words(e), *e.args[1:])
                raise
            except KeyboardInterrupt:  # click would print an empty line before ours
                raise Interrupted from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"no command is called '{name}'{did_you_mean(name, COMMANDS)}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"intaglio.cli.{name}")
        return module.command  # type: ignore[no-any-return]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Group, epilog=EPILOG, context_settings=CONTEXT, invoke_without_command=True)
@click.version_option(package_name="intaglio", message="intaglio %(version)s")
@click.option(
    "--plugin",
    "plugins",
    multiple=True,
    metavar="FILE",
    help="Load custom operators first: a plug-in (.so), a Python file or a module. Repeatable.",
)
@click.pass_context
def cli(ctx: click.Context, plugins: tuple[str, ...]) -> None:
    """Intaglio compiles a trained network into one file that its small C runtime executes.

    Packages for CPUs run on the processor of this machine. Packages for chips with an NPU run in a
    simulator; `perf` predicts their speed.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
    for source in plugins:
        from intaglio.custom import load  # without plug-ins, `--help` is instant

        load(source)


def main(args: list[str] | None = None) -> Any:
    """Run the command line. An error is one line on stderr and exit code 2."""
    with ended():
        restore_interrupt()
        result = cli.main(args, prog_name="intaglio", standalone_mode=False)
        sys.stdout.flush()
        return result
