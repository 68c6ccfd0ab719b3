"""README and docs: links lead somewhere, and commands exist with the options that are shown."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from intaglio.cli import cli

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMES = [str(p.relative_to(ROOT)) for p in PAGES]


def anchors(page: Path) -> set[str]:
    """What GitHub makes of a page's headings."""
    heads = re.findall(r"^#+ +(.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.S), re.M)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", h).lower() for h in heads]
    return {re.sub(r"[^\w\- ]", "", h).replace(" ", "-") for h in plain}


@pytest.mark.parametrize("name", NAMES)
def test_links(name: str):
    page = ROOT / name
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith(("http:", "https:")):
            continue
        path, _, anchor = link.partition("#")
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), f"{name}: {link} leads nowhere"
        if anchor and place.suffix == ".md":
            assert anchor in anchors(place), f"{name}: {link}: no such heading"


def shown(page: Path) -> Iterator[str]:
    """The commands of a page: lines of code blocks, and code within the text."""
    text = page.read_text().replace("\\\n", " ")
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.S):
        if language in ("", "sh", "bash", "console"):
            yield from (line.strip().removeprefix("$ ") for line in block.splitlines())
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S))


def words(line: str) -> list[str]:
    """A command in words: without a comment, a pipe and the brackets of what may be left out."""
    line = re.split(r"\s#|\s\||&&|;\s", line.replace("...", " ").replace("…", " "))[0]
    line = re.sub(r"[\[\]]", " ", line)
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


@pytest.mark.parametrize("name", NAMES)
def test_commands(name: str):
    for line in shown(ROOT / name):
        got = words(line)
        if len(got) < 2 or got[0] != "intaglio" or "|" in got[1]:
            continue
        command = cli.get_command(click.Context(cli), got[1]) or cli
        assert command is not cli or got[1].startswith("--"), f"{name}: {line}: no such command"
        known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)} | {"--help"}
        for word in got[2 if command is not cli else 1 :]:
            for option in re.findall(r"^(--?[a-zA-Z][\w-]*)", word):
                assert option in known, f"{name}: {line}: no option {option}"


@pytest.mark.parametrize("name", NAMES)
def test_modules(name: str):
    """`python -m some.module --option`: the module is there, and names the option."""
    for line in shown(ROOT / name):
        got = words(re.sub(r"^[A-Z_]+=\S+ ", "", line))
        if got[:2] not in (["python", "-m"], ["python3", "-m"]) or got[2].split(".")[0] == "pip":
            continue
        where = got[2].replace(".", "/")
        places = [
            ROOT / base / end
            for base in ("", "src")
            for end in (f"{where}.py", f"{where}/__main__.py", f"{where}/__init__.py")
        ]
        found = [p for p in places if p.exists()]
        assert found, f"{name}: {line}: no module {got[2]}"
        source = "".join(p.read_text() for p in found)
        for option in (w.split("=")[0] for w in got[3:] if w.startswith("--")):
            assert f'"{option}"' in source, f"{name}: {line}: no option {option}"
