"""The `intaglio` command: one file per sub-command; this one holds the group and its manners."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from typing import Any, NoReturn

import click

from intaglio.cli.flags import with_flags
from intaglio.errors import IntaglioError

COMMANDS = {  # name -> what the group's help says; the module of that name is imported when called
    "compile": "Compile a model into a package (.itg) for a target.",
    "run": "Run a package or a model on arrays.",
    "optimize": "Make an ONNX model smaller; say which rules did what.",
    "quantize": "Make a float model compute in integers, by samples.",
    "inspect": "Show what is in a model or a package.",
    "bench": "Measure latency, layer by layer if asked.",
    "perf": "Predict how fast a chip runs a model, layer by layer.",
    "memory": "Show what a model takes of a chip's memories.",
    "matmul": "Predict one product of matrices on a chip: limits, layouts, time.",
    "targets": "List the chips, or explain one: figures, limits, sources.",
}
EPILOG = """\b
Start here:
  intaglio inspect model.onnx                 what goes in, what comes out, which ops
  intaglio compile model.onnx -o model.itg    one flat file for this machine's CPU
  intaglio quantize model.onnx --data images/ --mean ... --std ...   the same in int8
  intaglio run model.itg x=x.npy -o out.npz   outputs, printed and saved
  intaglio bench model.itg --layers           where the time goes
  intaglio targets                            chips, and what is known of them
  intaglio perf model.int8.onnx --chips rk3588,k230   how fast they would be
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


@click.group(cls=_Group, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="intaglio", message="intaglio %(version)s")
def cli() -> None:
    """Intaglio compiles trained networks for chips and runs them natively."""


def main(args: list[str] | None = None) -> Any:
    """Run the command line. A user's mistake is one line on stderr and exit code 2."""
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
        print("intaglio: stopped", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader (head, less) went away: not our error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _fail(line: str) -> NoReturn:
    print(_one_line(line), file=sys.stderr)
    sys.exit(2)


def _one_line(text: str) -> str:
    return " ".join(text.split())
