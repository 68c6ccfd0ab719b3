"""`intaglio compress`: prune, sparsify, distil and train a model by a recipe."""

from __future__ import annotations

import json
from pathlib import Path

import click

from intaglio.cli import progress_line


@click.command("compress")
@click.argument("recipe", type=click.Path(dir_okay=False))
@click.option(
    "--data", required=True, metavar="PATH",
    help="Training data: .npz with x and y, or a folder of pictures with a folder per class.",
)  # fmt: skip
@click.option("--test", metavar="PATH", help="Data to measure accuracy with, as --data.")
@click.option(
    "-o", "--output", required=True, metavar="FILE",
    help="The result: .itg, a package for the recipe's target, or .onnx.",
)  # fmt: skip
@click.option(
    "--checkpoints", metavar="DIR",
    help="Keep checkpoints here; a run that was ended goes on from them.",
)  # fmt: skip
@click.option("--html", metavar="FILE", help="Write a report page.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(
    recipe: str,
    data: str,
    test: str | None,
    output: str,
    checkpoints: str | None,
    html: str | None,
    as_json: bool,
) -> None:
    """Run the steps of RECIPE, a YAML file, and write the compressed model.

    \b
    model: model.onnx                   any format that intaglio reads
    target: cpu                         or a chip
    data: {mean: [127.5], std: [127.5]} pixels become (x - mean) / std
    steps:
      - prune: {macs: 0.5}              or parameters: 0.5, or ms: 8.0
      - train: {epochs: 10, rate: 0.001, flip: true, teacher: self}
      - sparsify: "2:4 in"              or a share of zeros: 0.8
      - quantize: {weights: 4, activations: 8}
      - train: {epochs: 5}

    The trained model computes what the written one computes, byte for byte;
    the command refuses to write it otherwise. It needs PyTorch.

    \b
    intaglio compress recipe.yaml --data train.npz --test test.npz -o small.itg
    """
    import intaglio
    from intaglio.errors import BadInput, IntaglioError
    from intaglio.extras import install_command
    from intaglio.files import refuse_unwritable

    try:
        from intaglio.compress import recipe_file, report
    except ModuleNotFoundError as e:
        if e.name != "torch":
            raise
        raise IntaglioError(
            f"compress needs PyTorch, which is not installed; {install_command('train')}"
        ) from None
    if Path(output).suffix not in (".itg", ".onnx"):
        raise BadInput(f"output is '{output}'; its name must end in .itg or .onnx")
    refuse_unwritable(output, html)
    content = recipe_file.load(recipe)
    with progress_line.shown():
        runner = recipe_file.Runner(content, data, test, checkpoints, Path(recipe).parent)
        result = runner.run()
        if output.endswith(".itg"):
            intaglio.compile(result.graph, target=runner.recipe.target).save(output)
        else:
            intaglio.save_onnx(result.graph, output)
    if html:
        Path(html).write_text(report.page(result, Path(content["model"]).name), "utf-8")
    click.echo(json.dumps(result.to_dict(), indent=1) if as_json else report.text(result))
    if not as_json:
        click.echo(f"wrote {output}")
