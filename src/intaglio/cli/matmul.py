"""`intaglio matmul`: limits, layouts and predicted time of a matrix product on a chip."""

from __future__ import annotations

import json
from typing import Any

import click

from intaglio import progress
from intaglio.cli import fitted, progress_line
from intaglio.cli.chip_names import CHIPS
from intaglio.errors import BadInput, IntaglioError


@click.command("matmul")
@click.option(
    "--chip",
    "--chips",
    "names",
    type=CHIPS,
    default="all",
    show_default=True,
    help="Chips separated by commas, or all that have a matrix product.",
)
@click.option(
    "--m", "rows", default="1", show_default=True, help="Rows of A; several separated by commas."
)
@click.option("--k", type=int, required=True, help="Columns of A, rows of B.")
@click.option("--n", type=int, required=True, help="Columns of B.")
@click.option(
    "--types", default="int8,int8,int32", show_default=True, help="Element types of A, B and C."
)
@click.option(
    "--cores", type=int, default=1, show_default=True, help="Number of cores that share the work."
)
@click.option(
    "--run", is_flag=True, help="Multiply random matrices in the simulator and on this CPU."
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(
    names: str, rows: str, k: int, n: int, types: str, cores: int, run: bool, as_json: bool
) -> None:
    """Predict the product C = A B of A [M, K] and B [K, N] on a chip: limits, layouts, time.

    \b
    intaglio matmul --chip rk3588 --m 1 --k 4096 --n 4096 --types int8,int8,int32
    intaglio matmul --chip rk3576 --k 2048 --n 2048 --types fp16,int4,fp32
    intaglio matmul --k 1024 --n 1024          every chip that supports it
    intaglio matmul --chip rk3588 --m 8 --k 512 --n 512 --run
    """
    from intaglio.matmul import Spec, types_of
    from intaglio.targets import chip as chips

    every = _whole(rows)
    kinds = types_of(types)
    known = (
        names.split(",") if names != "all" else [c for c in chips.names() if chips.load(c).matmul]
    )
    found: list[dict[str, Any]] = []
    with progress_line.shown():
        for name in progress.counted("predicting for chip", known):
            chip = chips.load(name)
            try:
                spec = Spec(k, n, kinds, chip)
                found.append(_one(spec, every, cores))
            except IntaglioError as e:
                if len(known) == 1:
                    raise
                found.append({"chip": name, "refused": str(e)})
                continue
            if run:
                found[-1]["run"] = [_multiplied(spec, m, cores) for m in every]
    if as_json:
        click.echo(json.dumps(found, indent=1))
        return
    for one in found:
        _say(one)


def _whole(rows: str) -> list[int]:
    try:
        return [int(m) for m in rows.split(",")]
    except ValueError:
        raise BadInput(f"--m takes whole numbers separated by commas, not {rows}") from None


def _one(spec: Any, rows: list[int], cores: int) -> dict[str, Any]:
    """Limits, layouts and costs on one chip."""
    from intaglio.matmul import Spec, cost

    facts, kind = spec.facts, spec.types[0]
    native = Spec(spec.k, spec.n, spec.types, spec.chip, ("native", "native", "native"))
    limits = {
        "K": {"multiple": facts.k[kind], "most": facts.most_k.get(kind)},
        "N": {"multiple": facts.n[kind], "most": facts.most_n.get(kind)},
    }
    shapes = {
        word: {"A": list(s.a_shape(rows[0])), "B": list(s.b_shape()), "C": list(s.c_shape(rows[0]))}
        for word, s in (("normal", spec), ("native", native))
    }
    if facts.transposed:
        shapes["transposed"] = {"B": [spec.n, spec.k]}
    return {
        "chip": spec.chip.name,
        "types": ",".join(spec.types),
        "all_types": list(facts.types),
        "limits": limits,
        "layouts": shapes,
        "costs": [cost(spec, m, cores).to_dict() for m in rows],
    }


def _multiplied(spec: Any, m: int, cores: int) -> dict[str, Any]:
    """Random matrices through the simulator and through the CPU's kernels."""
    import time

    import numpy as np

    import intaglio
    from intaglio import dtypes

    rng = np.random.default_rng(0)

    def drawn(kind: str, *shape: int) -> Any:
        if dtypes.is_float(kind):
            return rng.normal(size=shape).astype(dtypes.numpy_of(kind))
        low, high = dtypes.limits(kind)
        return rng.integers(low, high + 1, shape).astype(np.int8)

    a, b = drawn(spec.types[0], m, spec.k), drawn(spec.types[1], spec.k, spec.n)
    made: dict[str, Any] = {"m": m}
    results = []
    for target in (spec.chip.name, "cpu"):
        mm = intaglio.Matmul(
            b, types=spec.types, m=m, target=target, cores=cores if target != "cpu" else 1
        )
        mm(a)
        start = time.perf_counter()
        results.append(mm(a))
        made["cpu_ms" if target == "cpu" else "simulated_ms"] = 1e3 * (time.perf_counter() - start)
    difference = np.abs(results[0].astype(np.float64) - results[1].astype(np.float64)).max()
    made["difference"] = float(difference / max(np.abs(results[1].astype(np.float64)).max(), 1e-30))
    return made


def _say(one: dict[str, Any]) -> None:
    from intaglio.text_table import aligned

    if "refused" in one:
        fitted.echo(
            f"{one['refused']}\n"
            if one["refused"].startswith(one["chip"])
            else f"{one['chip']}: {one['refused']}\n"
        )
        return
    fitted.echo(f"{one['chip']}: {one['types']}  (supported: {' '.join(one['all_types'])})")
    for what, limit in one["limits"].items():
        most = f", at most {limit['most']}" if limit["most"] else ""
        fitted.echo(f"  {what} is a multiple of {limit['multiple']}{most}")
    for word, shapes in one["layouts"].items():
        told = "  ".join(f"{what} {'x'.join(map(str, shape))}" for what, shape in shapes.items())
        fitted.echo(f"  {word:10}  {told}")
    rows = [("", "M", "ms", "cycles", "NPU", "DDR", "MB", "10^12 op/s", "MACs used", "bound by")]
    rows += [
        (
            "",
            str(c["m"]),
            f"{c['milliseconds']:.3f}",
            f"{c['cycles']:.0f}",
            f"{c['npu_cycles']:.0f}",
            f"{c['ddr_cycles']:.0f}",
            f"{c['bytes'] / 1e6:.2f}",
            f"{c['tops']:.3f}",
            f"{c['mac_use']:.1%}",
            c["bound"],
        )
        for c in one["costs"]
    ]
    for line in aligned(rows, range(1, 9), (4, 5, 6)):
        click.echo(line)
    for r in one.get("run", []):
        same = f"largest difference {r['difference']:.1e}" if r["difference"] else "bit-exact"
        fitted.echo(
            f"  M {r['m']}: simulated in {r['simulated_ms']:.2f} ms, on this CPU in "
            f"{r['cpu_ms']:.2f} ms, {same}"
        )
    click.echo()
