"""Evaluate models on labelled data: top-k, mAP, IoU, character error rate, or your own metric."""

from __future__ import annotations

from intaglio.evaluation.average_precision import AveragePrecision as AveragePrecision
from intaglio.evaluation.evaluate import Evaluation as Evaluation
from intaglio.evaluation.evaluate import Score as Score
from intaglio.evaluation.evaluate import evaluate as evaluate

__all__ = ["AveragePrecision", "Evaluation", "Score", "evaluate"]
