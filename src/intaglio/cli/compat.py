"""`intaglio compat`: command lines of chip vendors' tools."""

from __future__ import annotations

import sys

import click


@click.command(
    "compat",
    context_settings={
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
        "help_option_names": [],
    },
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND [ARGS]...")
def command(words: tuple[str, ...]) -> None:
    """Run a command line of a chip vendor's tool, or a script written for one.

    \b
    intaglio compat model_transform --model_name net --model_def net.onnx --mlir net.mlir
    intaglio compat convert.py           a script that imports rknn
    intaglio compat model_deploy --help  its options, and what each does here
    """
    from intaglio.compat.__main__ import main

    if code := main(words):
        sys.exit(code)
