"""Evaluate one or several models on labelled pictures, side by side."""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import intaglio
from intaglio import progress
from intaglio.errors import BadInput, did_you_mean, option
from intaglio.evaluation.scorers import SCORERS, Custom, Scorer
from intaglio.evaluation.truth import Truth, pictures_below, read_truth
from intaglio.package import Package
from intaglio.session import Session
from intaglio.text_table import aligned
from intaglio.vision import Predictor

if TYPE_CHECKING:
    from rich.table import Table

METRICS = ("top1", "top5", "map", "segm", "iou", "cer")
TOP_K = re.compile(r"top[1-9]\d{0,3}")


@dataclass(frozen=True)
class Score:
    """The figures of one model: value, and its 95 % confidence interval."""

    model: str
    figures: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    pictures: int
    change: tuple[float, float] | None = None  # 95 % interval of the difference from the first

    def to_dict(self) -> dict[str, Any]:
        def plain(x: float) -> float | None:
            return None if math.isnan(x) else x

        return {
            "model": self.model,
            "pictures": self.pictures,
            "figures": {k: plain(v) for k, v in self.figures.items()},
            "intervals_95": {k: [plain(x) for x in v] for k, v in self.intervals.items()},
            "change_interval_95": None if self.change is None else [plain(x) for x in self.change],
        }


@dataclass(frozen=True)
class Evaluation:
    """The figures of all models on the same pictures."""

    metric: str
    scores: list[Score]
    details: list[Any] = field(default_factory=list, repr=False)  # a scorer for each model

    def to_dict(self) -> dict[str, Any]:
        return {"metric": self.metric, "models": [s.to_dict() for s in self.scores]}

    def titles(self) -> list[str]:
        figures = list(self.scores[0].figures)
        wide = [t for f in figures for t in ((f, "95 % interval") if self._known(f) else (f,))]
        change = ["change", "95 % interval"] if len(self.scores) > 1 else []
        return ["model", *wide, *change, "pictures"]

    def _known(self, figure: str) -> bool:
        return figure in self.scores[0].intervals

    def rows(self) -> list[list[str]]:
        first = next(iter(self.scores[0].figures))
        rows = []
        for s in self.scores:
            cells = [s.model]
            for f, v in s.figures.items():
                cells.append(f"{v:.2%}")
                if self._known(f):
                    cells.append(_span(s.intervals[f], ".2%"))
            if len(self.scores) > 1:
                change = s.figures[first] - self.scores[0].figures[first]
                cells.append("" if s is self.scores[0] else f"{change:+.2%}")
                cells.append("" if s.change is None else _span(s.change, "+.2%"))
            rows.append([*cells, str(s.pictures)])
        return rows

    def __str__(self) -> str:
        table = [self.titles(), *self.rows()]
        return "\n".join(aligned(table, range(1, len(table[0]))))

    def __rich__(self) -> Table:
        from rich.table import Table

        table = Table(title=self.metric)
        for title in self.titles():
            table.add_column(title)
        for row in self.rows():
            table.add_row(*row)
        return table

    def _repr_html_(self) -> str:
        from intaglio.analysis.html_table import html_table

        return html_table(self.metric, self.titles(), self.rows())


def _span(interval: tuple[float, float], form: str) -> str:
    low, high = interval
    return f"{low:{form}} to {high:{form}}"


def evaluate(
    models: Any,
    data: str | Path,
    metric: str | Callable[..., float] = "top1",
    *,
    truth: str | Path | None = None,
    limit: int | None = None,
    draw: str | Path | None = None,
    characters: Sequence[str] | None = None,
    blank: int = 0,
    names: Sequence[str] = (),
    **prediction: Any,
) -> Evaluation:
    """Run models on the labelled pictures of a folder.

    `models` is a model file, package, Package or Session, or a list of them. `metric` is top1,
    topK, map, iou, cer, FILE.py:FUNCTION, or a function of (prediction, label) that returns a
    number for one picture. `truth` says where the labels are, if not in the folder. `draw` is a
    folder for the pictures with boxes, classes or masks; `names` are titles of the models. Other
    keywords are those of `vision.Predictor`.
    """
    listed = list(models) if isinstance(models, list | tuple) else [models]
    if not listed:
        raise BadInput("no model is given; give at least one")
    name, custom = _metric(metric)
    if limit is not None and limit < 1:
        raise BadInput(f"{option('limit', limit)}: at least one picture is needed")
    known = _truth(name, custom, data, truth)
    pictures = list(known.labels)[:limit]
    scores: list[Score] = []
    details: list[Scorer] = []
    titles: list[str] = []
    for number, model in enumerate(listed):
        session, title, own = _opened(model, number)
        title = Path(names[number]).name if number < len(names) else title
        if title in titles:  # a/model.itg and b/model.itg
            title = f"{title} {number + 1}"
        titles.append(title)
        try:
            scorer = _scorer(name, custom, session, known, characters, blank, prediction)
            for i, path in enumerate(pictures):
                progress.report(f"evaluating {title}", i, len(pictures))
                made = scorer.add(path, known.labels[path])
                if draw:
                    folder = Path(draw) / title if len(listed) > 1 else Path(draw)
                    folder.mkdir(parents=True, exist_ok=True)
                    scorer.draw(made, folder / f"{path.stem}.png")
        finally:
            if own:
                session.close()
        change = scorer.change_from(details[0]) if details else None
        figures, intervals = scorer.figures(), scorer.intervals()
        scores.append(Score(title, figures, intervals, len(pictures), change))
        details.append(scorer)
    return Evaluation(name, scores, details)


def _metric(metric: str | Callable[..., float]) -> tuple[str, Callable[..., float] | None]:
    if callable(metric):
        return getattr(metric, "__name__", "metric"), metric
    if metric in METRICS or TOP_K.fullmatch(metric):
        return metric, None
    path, colon, function = metric.rpartition(":")
    if not colon or not path.endswith(".py"):
        hint = did_you_mean(metric, METRICS)
        listed = f"{', '.join(METRICS)}, any topK"
        raise BadInput(
            f"no metric is called '{metric}'{hint}; metrics are {listed}, and FILE.py:FUNCTION"
        )
    if not Path(path).is_file():
        raise BadInput(f"{path}: no such file; {option('metric')} names a function in it")
    spec = importlib.util.spec_from_file_location("intaglio_metric", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as e:
        where = f", line {e.lineno}" if isinstance(e, SyntaxError) else ""
        raise BadInput(f"{path}{where} cannot be imported: {type(e).__name__}: {e}") from None
    found = getattr(module, function, None)
    if not callable(found):
        raise BadInput(f"{path} has no function '{function}'; define {function}(prediction, label)")
    return function, found


def _scorer_of(metric: str) -> type[Scorer]:
    return SCORERS["top1" if TOP_K.fullmatch(metric) else metric]


def _truth(
    name: str, custom: Callable[..., float] | None, data: str | Path, truth: str | Path | None
) -> Truth:
    if custom is None:
        return read_truth(_scorer_of(name).kind, data, truth)
    for kind in ("class", "boxes", "mask", "text"):
        try:
            return read_truth(kind, data, truth)
        except BadInput:
            continue
    return Truth("none", dict.fromkeys(pictures_below(Path(data))))


def _scorer(
    name: str,
    custom: Callable[..., float] | None,
    session: Session,
    truth: Truth,
    characters: Sequence[str] | None,
    blank: int,
    prediction: Mapping[str, Any],
) -> Scorer:
    given = dict(prediction)
    if name in ("map", "segm") and custom is None:
        given.setdefault("confidence", 0.001)  # as COCO: precision at every recall
    predictor = Predictor(session, **given)
    if custom is not None:
        return Custom(name, predictor, custom)
    scorer: Scorer = _scorer_of(name)(name, predictor)
    scorer.prepare(truth, characters, blank)
    return scorer


def _opened(model: Any, number: int) -> tuple[Session, str, bool]:
    """A session, a title for tables, and whether the session is to be closed."""
    if isinstance(model, Session):
        return model, f"model {number + 1}", False
    if isinstance(model, Package):
        return intaglio.open(model), f"model {number + 1}", True
    path = Path(model)
    if not path.exists():
        raise BadInput(f"{path}: no such file")
    with open(path, "rb") as f:
        compiled = f.read(4) == b"ITG1"
    return intaglio.open(path if compiled else intaglio.compile(path)), path.name, True
