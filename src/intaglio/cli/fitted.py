"""Printing within the width of the terminal."""

from __future__ import annotations

import click

from intaglio.text_table import wrapped


def echo(text: str) -> None:
    """Print text; lines that are too long for the terminal are continued below."""
    click.echo(wrapped(text))
