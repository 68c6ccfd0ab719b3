"""Golden files of the rules: the first case of every rule, before and after it fires.

python -m tests.passes.golden writes tests/golden/rules/NAME.txt where they are missing or differ
"""

from __future__ import annotations

import functools
from pathlib import Path

from tests.passes.cases import CASES, graph_of
from tests.passes.every_rule import RULES

from intaglio.rewrite import rewrite

FOLDER = Path(__file__).parents[1] / "golden" / "rules"


@functools.cache
def shown() -> dict[str, str]:
    """The text of every rule's file, by the rule's name."""
    texts: dict[str, str] = {}
    for name, build, types in CASES:
        if name not in texts:
            graph = graph_of(build, types)
            before = str(graph)
            rewrite(graph, RULES[name])
            texts[name] = f"{before}\n\n{name}:\n\n{graph}\n"
    return texts


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    texts = shown()
    for path in FOLDER.glob("*.txt"):
        if path.stem not in texts:
            path.unlink()
            print("removed", path.name)
    for name, text in texts.items():
        path = FOLDER / f"{name}.txt"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print("wrote", path.name)


if __name__ == "__main__":
    main()
