"""Help in groups: a command's own options with --help, those for reading models with --help-input.

Many commands read models, with the same options. `--help` names them in one line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

INPUT_GROUPS: dict[str, list[str]] = {}  # title -> flags of options for reading models
OTHER = "Options"  # title of options without a group


def add_input_group(title: str, flags: list[str]) -> None:
    """Make these flags a group of --help-input."""
    INPUT_GROUPS[title] = flags


class GroupedCommand(click.Command):
    """A command whose --help has groups: {"Samples": "--data --bgr"} lists flags by title."""

    def __init__(self, *args: Any, groups: Mapping[str, str] | None = None, **keywords: Any):
        super().__init__(*args, **keywords)
        self.groups = {title: flags.split() for title, flags in (groups or {}).items()}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, lines in self._rows(ctx, self.groups).items():
            if title not in INPUT_GROUPS and lines:
                with formatter.section(title):
                    formatter.write_dl(lines)

    def _rows(
        self, ctx: click.Context, groups: Mapping[str, list[str]]
    ) -> dict[str, list[tuple[str, str]]]:
        """The help lines of options by title of their group."""
        title_of = {f: title for t in (groups, INPUT_GROUPS) for title, fs in t.items() for f in fs}
        rows: dict[str, list[tuple[str, str]]] = {t: [] for t in (*groups, OTHER, *INPUT_GROUPS)}
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx)
            if row and isinstance(parameter, click.Option):
                titles = [title_of[o] for o in parameter.opts if o in title_of]
                rows[titles[0] if titles else OTHER].append(row)
        return rows


class ModelCommand(GroupedCommand):
    """A command that reads models, with the options for that in --help-input."""

    def input_help(self, ctx: click.Context) -> str:
        """The text of --help-input."""
        formatter = ctx.make_formatter()
        formatter.write_text(f"Options of `{ctx.command_path}` for reading models.")
        for title, lines in self._rows(ctx, {}).items():
            if title in INPUT_GROUPS:
                with formatter.section(title):
                    formatter.write_dl(lines)
        return formatter.getvalue().rstrip("\n")


def _show_input_help(ctx: click.Context, parameter: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing and isinstance(ctx.command, ModelCommand):
        click.echo(ctx.command.input_help(ctx), color=ctx.color)
        ctx.exit()


help_input_option = click.option(
    "--help-input",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_input_help,
    help="Show the options for reading models: --shape, --mean, ...",
)
