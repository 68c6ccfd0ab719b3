"""The margin of an answer: how far its best class is ahead, and which margin to ask for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array

SUM_TOLERANCE = 0.02  # of probabilities of an int8 model


def margins(scores: Array) -> Array:
    """For each row of scores: the best class's probability less that of the second.

    Rows that are no probabilities are taken for logits, of which the softmax is computed.
    """
    rows = np.asarray(scores, np.float64)
    rows = rows.reshape(-1, rows.shape[-1]) if rows.ndim else rows.reshape(1, 1)
    if rows.shape[-1] < 2:
        raise BadInput(f"scores have shape {np.shape(scores)}; a margin needs two classes or more")
    sums = rows.sum(-1, keepdims=True)
    if not (rows.min(initial=0) >= 0 and np.all(np.abs(sums - 1) <= SUM_TOLERANCE)):
        powers = np.exp(rows - rows.max(-1, keepdims=True))
        rows = powers / powers.sum(-1, keepdims=True)
    top = np.partition(rows, -2, axis=-1)
    found: Array = top[:, -1] - top[:, -2]
    return found


@dataclass(frozen=True)
class Tradeoff:
    """A cascade with one margin: the share of requests that it sends, and its accuracy."""

    margin: float
    sent: float  # share of the requests
    right: float  # share of the answers


def tradeoffs(device: Array, server: Array, labels: Array | None = None) -> list[Tradeoff]:
    """Every margin that changes something, for scores of both models on the same samples.

    Without labels the server's class counts as right. The list begins with the device alone and
    ends with the server alone.
    """
    device, server = np.asarray(device), np.asarray(server)
    if device.ndim != 2 or len(device) != len(server) or not len(device):
        raise BadInput(
            f"scores have shapes {device.shape} and {server.shape}; give one row for each sample"
        )
    on_server = server.argmax(-1)
    truth = on_server if labels is None else np.asarray(labels).ravel()
    if len(truth) != len(device):
        raise BadInput(f"{len(truth)} labels for {len(device)} samples; give one for each")
    found = margins(device)
    order = np.argsort(found, kind="stable")
    right = (device.argmax(-1) == truth)[order].astype(int)
    better = (on_server == truth)[order].astype(int)
    total = right.sum() + np.concatenate([[0], np.cumsum(better - right)])
    ordered, n = found[order], len(order)
    steps = [0, *(i for i in range(1, n) if ordered[i] > ordered[i - 1]), n]
    margin = [0.0 if not i else float(ordered[i]) if i < n else 1.01 for i in steps]
    return [Tradeoff(m, i / n, float(total[i]) / n) for m, i in zip(margin, steps, strict=True)]


def margin_for(
    device: Array,
    server: Array,
    labels: Array | None = None,
    *,
    sent: float | None = None,
    right: float | None = None,
) -> Tradeoff:
    """The most accurate cascade that sends at most the share `sent` of the requests; or the one
    that sends least and is right in at least the share `right`.
    """
    if (sent is None) == (right is None):
        raise BadInput(
            "give either sent, a share of the requests, or right, a share of the answers"
        )
    rows = tradeoffs(device, server, labels)
    if sent is not None:
        allowed = [t for t in rows if t.sent <= sent]
        return max(allowed, key=lambda t: (t.right, -t.sent))
    assert right is not None
    good = [t for t in rows if t.right >= right]
    if not good:
        best = max(t.right for t in rows)
        raise BadInput(f"no margin is right in {right:.1%} of the samples; the best is {best:.1%}")
    return min(good, key=lambda t: t.sent)
