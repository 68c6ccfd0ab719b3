"""Hooks of the site's build: pages made from the code and from files outside of docs/.

- The command-line reference is written from the click commands, the C reference shows the header.
- CHANGELOG.md and CONTRIBUTING.md become pages.
- A link to a source file leads to a copy of it in the site, so that it works without a network.
- Drawings (SVG) are put into the page itself, so that they follow its light or dark colours.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Any

import click
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]

LINK = re.compile(r"(!?)\[((?:[^\]\[]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
BLOCK = re.compile(r"(^```.*?^```$)", re.M | re.S)  # of code
COPIED = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
SHARED_BY = 5  # an option of this many commands is listed once, below all of them


# ---- mkdocs events ----
def on_files(files: Files, config: Any) -> Files:
    for page, source in COPIED.items():
        if (ROOT / source).exists():
            files.append(File.generated(config, page, content=_moved(ROOT / source)))
    wanted = {p for f in files.documentation_pages() for p in _sources(f)}
    for path in sorted(wanted):
        files.append(File.generated(config, _copy(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    if page.file.src_uri == "reference/cli.md":
        markdown = markdown.replace("<!-- commands -->", cli_reference())
    if page.file.src_uri == "reference/c-api.md":
        header = (ROOT / "csrc/include/intaglio.h").read_text()
        markdown = markdown.replace("<!-- header -->", f"```c\n{header}```\n")
    place = PurePosixPath(page.file.src_uri).parent
    return _outside_code(markdown, lambda text: LINK.sub(lambda m: _link(m, place), text))


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    folder = ROOT / "docs" / PurePosixPath(page.file.src_uri).parent

    def inline(image: re.Match[str]) -> str:
        path = (folder / image["src"]).resolve()
        svg = path.read_text() if path.exists() else ""
        if 'class="drawing"' not in svg:
            return image[0]
        return f'<span class="figure">{svg}</span>'

    return re.sub(r'<img alt="[^"]*" src="(?P<src>[^":]+\.svg)" ?/?>', inline, html)


# ---- links ----
def _outside_code(text: str, change: Any) -> str:
    """`text` with `change` applied to everything but blocks of code."""
    return "".join(b if i % 2 else change(b) for i, b in enumerate(BLOCK.split(text)))


def _outside(link: str, place: PurePosixPath) -> str | None:
    """The path in the repository of a link that leaves docs/, else None."""
    if link.startswith(("http:", "https:", "mailto:", "#")):
        return None
    path = (ROOT / "docs" / place / link.partition("#")[0]).resolve()
    if not path.is_relative_to(ROOT) or path.is_relative_to(ROOT / "docs"):
        return None
    return path.relative_to(ROOT).as_posix()


def _sources(file: File) -> set[str]:
    """Source files that a page links to."""
    place = PurePosixPath(file.src_uri).parent
    found = (_outside(link, place) for _, _, link in LINK.findall(file.content_string))
    return {p for p in found if p and (ROOT / p).is_file() and p not in COPIED.values()}


def _copy(path: str) -> str:
    return f"source/{path}" if path.endswith((".txt", ".svg", ".png")) else f"source/{path}.txt"


def _link(match: re.Match[str], place: PurePosixPath) -> str:
    """A Markdown link, led to the copy of a source file; the bare text for a folder."""
    path = _outside(match[3], place)
    if path is None or not (ROOT / path).exists():
        return match[0]  # mkdocs complains of a link that leads nowhere
    page = next((k for k, v in COPIED.items() if v == path), None)
    target = page or (_copy(path) if (ROOT / path).is_file() else None)
    if target is None:
        return match[2]
    up = "../" * len(place.parts)
    return f"{match[1]}[{match[2]}]({up}{target})"


def _moved(path: Path) -> str:
    """A page of the repository's root as if it lay in docs/."""

    def move(match: re.Match[str]) -> str:
        link = match[3]
        if link.startswith(("http:", "https:", "#")):
            return match[0]
        inside = link.startswith("docs/")
        link = link.removeprefix("docs/") if inside else f"../{link}"
        return f"{match[1]}[{match[2]}]({link})"

    return _outside_code(path.read_text(), lambda text: LINK.sub(move, text))


# ---- the command line ----
def cli_reference() -> str:
    """Every command with its options, from the texts that `--help` prints."""
    sys.path.insert(0, str(ROOT / "src"))  # here: mkdocs restores sys.path after loading this file
    from intaglio.cli import cli

    context = click.Context(cli, info_name="intaglio")
    commands = {n: cli.get_command(context, n) for n in cli.list_commands(context)}
    options = {n: _options(c, context) for n, c in commands.items() if c}
    count = Counter(o for table in options.values() for o in table)
    shared = [o for o, times in count.items() if times >= SHARED_BY]
    lines = []
    for name, command in commands.items():
        assert command is not None
        sub = click.Context(command, info_name=name, parent=context)
        lines += [f"## intaglio {name} {{ #{name} }}", "", *_help(command.help or "")]
        usage = " ".join(command.collect_usage_pieces(sub))
        lines += ["```text", f"intaglio {name} {usage}", "```", ""]
        lines += _table([o for o in options[name] if o not in shared])
        if any(o in shared for o in options[name]):
            lines += ["It also takes the [options for reading a model](#reading-a-model).", ""]
    lines += ["## Options for reading a model { #reading-a-model }", ""]
    takes = [n for n in options if any(o in shared for o in options[n])]
    lines += [f"These belong to {', '.join(f'`{n}`' for n in takes)}.", "", *_table(shared)]
    return "\n".join(lines)


def _help(text: str) -> list[str]:
    """A command's help: its sentences as text, its examples as a block of code."""
    lines: list[str] = []
    for part in text.split("\n\n"):
        if "\b" in part:  # click's mark of lines that are not wrapped
            examples = textwrap.dedent(part.replace("\b", "")).strip()
            lines += ["```text", *examples.splitlines(), "```", ""]
        else:
            lines += [" ".join(part.split()), ""]
    return lines


def _options(command: click.Command, parent: click.Context) -> dict[tuple[str, str], None]:
    context = click.Context(command, parent=parent)
    records = (p.get_help_record(context) for p in command.params if isinstance(p, click.Option))
    return {r: None for r in records if r}


def _table(options: list[tuple[str, str]]) -> list[str]:
    if not options:
        return []
    rows = [f"| `{a.replace('|', chr(92) + '|')}` | {_cell(b)} |" for a, b in options]
    table = ["| option | meaning |", "|---|---|", *rows]
    return ['<div class="options" markdown>', "", *table, "", "</div>", ""]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("[", "\\[").replace("<", "&lt;")
