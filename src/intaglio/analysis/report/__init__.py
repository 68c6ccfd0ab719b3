"""One HTML page about a model: graph, accuracy, speed, memory, partition."""

from __future__ import annotations

from intaglio.analysis.report.build import report as report
from intaglio.analysis.report.model_report import ModelReport as ModelReport

__all__ = ["ModelReport", "report"]
