"""`intaglio edit`: model surgery. The edits are options or the lines of a script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from intaglio import progress
from intaglio.cli import fitted, options, progress_line
from intaglio.cli.help import GroupedCommand
from intaglio.edit.verbs import VERBS
from intaglio.errors import BadInput

if TYPE_CHECKING:
    from intaglio.edit.editor import Editor
    from intaglio.edit.script import Line

SCRIPT = "script"
# Parameters by verb, where messages of the library name another keyword than the verb.
_KEYWORDS = {"set shape": "shapes", "set dim": "dims"}
_GROUPS = {
    title: " ".join(f"--{verb.replace(' ', '-')}" for verb, v in VERBS.items() if v.group == title)
    for title in dict.fromkeys(v.group for v in VERBS.values())
}


class _EditCommand(GroupedCommand):
    """Keeps the order of the edits over all options, which click sorts by option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            given, _, order = self.make_parser(ctx).parse_args(args=list(args))
            values = {name: iter(v) for name, v in given.items() if isinstance(v, list)}
            ctx.meta[SCRIPT] = [
                (p.opts[0], next(values[p.name])) for p in order if p.name in _VERB_OF
            ]
        return super().parse_args(ctx, args)


def _parameter(verb: str) -> str:
    return _KEYWORDS.get(verb, verb.replace(" ", "_"))


_VERB_OF = {_parameter(verb): verb for verb in VERBS} | {SCRIPT: SCRIPT}


def _edit_options(command: Any) -> Any:
    """Add an option for each verb, and --script."""
    for verb, v in reversed(VERBS.items()):
        command = click.option(
            f"--{verb.replace(' ', '-')}",
            _parameter(verb),
            multiple=True,
            expose_value=False,
            metavar=f'"{v.form}"' if " " in v.form else v.form,
            help=v.help,
        )(command)
    return command


@click.command("edit", cls=_EditCommand, groups=_GROUPS)
@click.argument("model", type=click.Path())
@_edit_options
@click.option("-o", "out", type=click.Path(), help="ONNX file to write [default: only report].")
@click.option(
    "--script",
    SCRIPT,
    multiple=True,
    expose_value=False,
    type=click.Path(),
    metavar="FILE",
    help="Read edits from a file, one on each line; # begins a comment.",
)
@options.check_options
@click.option(
    "--convert-data",
    metavar="FILE|FOLDER",
    help="Convert .npy or .npz samples of the original model for the edited one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    model: str,
    out: str | None,
    check: bool,
    engine: str,
    data: tuple[str, ...],
    seed: int,
    convert_data: str | None,
    as_json: bool,
) -> None:
    """Edit MODEL, an ONNX file, and write another one. Other formats are converted to ONNX first.

    Edits are made in the order in which they are given. Then both models are run and compared:
    outputs that no edit changes on purpose must be equal. Without edits, all names are listed.

    \b
    intaglio edit model.onnx                 lists the names of nodes and tensors
    intaglio edit model.onnx -o part.onnx --cut-inputs r1 --cut-outputs logits
    intaglio edit model.onnx -o e.onnx --remove "every Dropout"
    intaglio edit model.onnx -o e.onnx --change-input "input: uint8 NHWC"
    intaglio edit model.onnx -o e.onnx --change-input "x: a,b,c,d->ab,1,c,d"
    intaglio edit model.onnx -o e.onnx --insert-after "c1: Clip(min=0, max=6)"
    intaglio edit model.onnx -o e.onnx --set-attribute "resize1.mode=nearest"
    intaglio edit model.onnx -o e.onnx --script edits.txt

    \b
    NAMES   nodes: a name, a pattern (*/Act*) or an operator (every Relu)
    NODE    a new node: Relu, Clip(min=0, max=6), Add(_, bias), Mul(0.5)
    CHANGE  NHWC, uint8, NCHW->NHWC, or axes before and after: a,b,c->ab,1,c

    `=` may stand for the colon. A line of a script is an option without its hyphens: `insert after
    c1: Relu` is --insert-after "c1: Relu". docs/edit.md explains the language.
    """
    import intaglio
    from intaglio.edit import summary
    from intaglio.edit.model_file import refuse_overwriting
    from intaglio.edit.script import carry_out
    from intaglio.files import refuse_unwritable

    with progress_line.shown():
        progress.report("reading the model")
        editor = intaglio.edit(model)
        lines = _lines(ctx.meta.get(SCRIPT, []))
        if not lines:
            _list(editor, out, as_json)
            return
        if out:
            refuse_overwriting(editor.source, Path(out))
            refuse_unwritable(out)
        progress.report("editing")
        carry_out(editor, lines)
        found = _checked(editor, engine, seed, data) if check else None
        if out:
            editor.save(out, check=False)
        converted = _converted(editor, convert_data, out)
    facts = {**summary.facts(editor, found), **converted}
    if as_json:
        click.echo(json.dumps(facts, indent=1))
        return
    fitted.echo(summary.text(facts))
    if out:
        fitted.echo(summary.size_line(Path(out), facts["opset"]))


def _lines(given: list[tuple[str, str]]) -> list[Line]:
    """The edits of all options, in order."""
    from intaglio.edit.script import parse_line, read

    result: list[Line] = []
    for flag, value in given:
        if flag == f"--{SCRIPT}":
            result += read(_text(value), value)
        else:
            result.append(parse_line(f"{flag[2:].replace('-', ' ')} {value}", f'{flag} "{value}"'))
    return result


def _text(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except OSError as e:
        raise BadInput(f"cannot read '{path}': {(e.strerror or str(e)).lower()}") from None
    except UnicodeDecodeError:
        raise BadInput(f"'{path}' is no text file; a script has one edit on each line") from None


def _list(editor: Editor, out: str | None, as_json: bool) -> None:
    from intaglio.edit import summary

    if out:
        raise BadInput(f"no edit is given, '{out}' would be a copy; give edits or leave -o out")
    if as_json:
        click.echo(json.dumps(summary.names(editor), indent=1))
    else:
        click.echo(summary.listing(editor))


def _checked(editor: Editor, engine: str, seed: int, data: tuple[str, ...]) -> Any:
    with progress.inside("comparing outputs"):
        types = {i.name: None for i in editor.state.inputs}
        found = editor.check(engine, seed, options.read_feeds(data, types, None) or None)
    found.require()
    return found


def _converted(editor: Editor, source: str | None, out: str | None) -> dict[str, Any]:
    from intaglio.edit.samples import convert_files

    if source is None:
        return {}
    if out is None:
        raise BadInput("--convert-data writes beside the edited model; give -o")
    listed, count = convert_files(editor, source, Path(out))
    return {"data": {"list": str(listed), "samples": count}}
