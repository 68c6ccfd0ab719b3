"""The `intaglio` command. Each sub-command has its own file; this one handles errors."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from typing import Any, NoReturn

import click

from intaglio.cli.flags import with_flags
from intaglio.errors import IntaglioError

COMMANDS = {  # name -> line of the group's help; the module is imported when the command is called
    "compile": "Compile a model into a package (.itg) for a CPU or chip.",
    "run": "Run a package or a model on arrays.",
    "optimize": "Optimise a model and write it as ONNX.",
    "quantize": "Quantise a float model to integers, with sample inputs.",
    "inspect": "Show inputs, outputs, operations and memory of a model or package.",
    "bench": "Measure latency on this machine, in total or per layer.",
    "perf": "Predict the speed of a model on a chip, layer by layer.",
    "memory": "Show how a model uses the memories of a chip.",
    "matmul": "Predict a matrix product on a chip: limits, layouts, time.",
    "targets": "List the supported chips, or show one with its sources.",
}
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
EPILOG = """\b
Start here:
  intaglio inspect model.onnx                 inputs, outputs, operations
  intaglio compile model.onnx -o model.itg    a package for this machine's CPU
  intaglio quantize model.onnx --data images/ --mean ... --std ...   an int8 package
  intaglio run model.itg x=x.npy -o out.npz   print and save the outputs
  intaglio bench model.itg --layers           time of every layer
  intaglio targets                            supported chips
  intaglio perf model.int8.onnx --chips rk3588,k230   compare chips by predicted speed
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
            print(_one_line(f"intaglio: warning: {words(message)}"), file=sys.stderr)

        with warnings.catch_warnings():
            warnings.showwarning = show
            try:
                return super().invoke(ctx)
            except IntaglioError as e:
                e.args = (words(e), *e.args[1:])
                raise

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


@click.group(cls=_Group, epilog=EPILOG, context_settings=CONTEXT)
@click.version_option(package_name="intaglio", message="intaglio %(version)s")
def cli() -> None:
    """Intaglio compiles a trained network into one file that its small C runtime executes."""


def main(args: list[str] | None = None) -> Any:
    """Run the command line. An error is one line on stderr and exit code 2."""
    try:
        return cli.main(args, prog_name="intaglio", standalone_mode=False)
    except click.exceptions.Exit as e:
        sys.exit(e.exit_code)
    except click.ClickException as e:
        path = e.ctx.command_path if isinstance(e, click.UsageError) and e.ctx else "intaglio"
        _fail(f"{path}: {e.format_message().rstrip('.')}; see '{path} --help'")
    except IntaglioError as e:
        _fail(f"intaglio: {e}")
    except (click.Abort, KeyboardInterrupt):
        print("intaglio: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader (head, less) closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _fail(line: str) -> NoReturn:
    print(_one_line(line), file=sys.stderr)
    sys.exit(2)


def _one_line(text: str) -> str:
    return " ".join(text.split())
