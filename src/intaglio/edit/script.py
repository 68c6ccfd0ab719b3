"""The script language: one edit a line, `VERB TARGET: VALUE`.

The options of `intaglio edit` are the same verbs with hyphens: `--insert-after "c1: Relu"` is the
line `insert after c1: Relu`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from intaglio.edit.script_text import names, outside_quotes, split
from intaglio.edit.verbs import CUT_INPUTS, CUT_OUTPUTS, VERBS
from intaglio.errors import BadInput, IntaglioError, did_you_mean

if TYPE_CHECKING:
    from intaglio.edit.editor import Editor


@dataclass(frozen=True)
class Line:
    """One edit of a script, not carried out yet."""

    verb: str
    rest: str
    where: str  # for messages


def run(editor: Editor, script: str, name: str = "") -> None:
    """Carry out all edits of a script, or none if one of them fails."""
    carry_out(editor, read(script, name))


def read(script: str, name: str = "") -> list[Line]:
    """The edits of a script; BadInput for a line that is none."""
    lines = []
    for number, text in enumerate(script.splitlines(), 1):
        where = f"{name}, line {number}" if name else f"line {number}"
        plain = _without_comment(text, where).strip()
        if plain:
            lines.append(parse_line(plain, where))
    return lines


def _without_comment(text: str, where: str) -> str:
    """The line up to a `#` at its beginning or behind a blank."""
    try:
        for i, c in outside_quotes(text):
            if c == "#" and (i == 0 or text[i - 1].isspace()):
                return text[:i]
    except BadInput as e:
        raise BadInput(f"{where}: {e}") from None
    return text


def parse_line(text: str, where: str) -> Line:
    """One edit; BadInput with the nearest verb if there is no such."""
    for count in (2, 1):
        words = text.split(None, count)
        verb = " ".join(words[:count]).lower().removesuffix(":")
        if verb in VERBS:
            return Line(verb, words[count] if len(words) > count else "", where)
    first = " ".join(text.split()[:2])
    near = did_you_mean(first, VERBS) or did_you_mean(first.split()[0], VERBS)
    raise BadInput(
        f"{where}: no edit is called '{first}'{near or '; known are ' + ', '.join(VERBS)}"
    )


def carry_out(editor: Editor, lines: Sequence[Line]) -> None:
    """Carry out edits in order; if one fails, all are undone, and the error says which."""
    before = editor.snapshot()
    for group in _with_joined_cuts(lines):
        first = len(editor.edits)
        try:
            _carry_out(editor, group)
            made = (replace(e, where=group[0].where) for e in editor.edits[first:])
            editor.edits[first:] = list(made)
        except IntaglioError as e:
            editor.restore(before)
            e.args = (f"{group[-1].where}: {e}", *e.args[1:])
            raise


def _with_joined_cuts(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """The lines; a cut of inputs beside one of outputs is one edit, as each alone may fail."""
    i = 0
    while i < len(lines):
        cuts = {line.verb for line in lines[i : i + 2]} == {CUT_INPUTS, CUT_OUTPUTS}
        yield list(lines[i : i + 1 + cuts])
        i += 1 + cuts


def _carry_out(editor: Editor, group: list[Line]) -> None:
    if len(group) == 2:
        cuts = {line.verb: names(_parts(line)[0]) for line in group}
        editor.cut(inputs=cuts[CUT_INPUTS], outputs=cuts[CUT_OUTPUTS])
    else:
        VERBS[group[0].verb].run(editor, *_parts(group[0]))


def _parts(line: Line) -> tuple[str, str]:
    """Target and value of an edit; "" without a value."""
    verb = VERBS[line.verb]
    target, value = split(line.rest) if verb.has_value else (line.rest.strip(), "")
    if not target or (verb.needs_value and not value):
        what = "value" if target else "target"
        raise BadInput(f"'{line.verb} {line.rest}' has no {what}; write {line.verb} {verb.form}")
    return target, value
