"""Clients on a device: a cascade of two models, and a model that is split over the network.

with Cascade("small.itg", Server("http://10.0.0.2:8000", "large"), margin=0.3) as cascade:
    answer = cascade.run({"image": image})     # answer.outputs, answer.source

Both answer from the device while the link is down.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from intaglio.client.answer import Answer as Answer
    from intaglio.client.cascade import Cascade as Cascade
    from intaglio.client.confidence import Tradeoff as Tradeoff
    from intaglio.client.confidence import margin_for as margin_for
    from intaglio.client.confidence import margins as margins
    from intaglio.client.confidence import tradeoffs as tradeoffs
    from intaglio.client.server import Server as Server
    from intaglio.client.server import Unreachable as Unreachable
    from intaglio.client.split_model import SplitModel as SplitModel

_LAZY = {  # so that `import intaglio` is fast
    "Answer": "intaglio.client.answer",
    "Cascade": "intaglio.client.cascade",
    "Server": "intaglio.client.server",
    "SplitModel": "intaglio.client.split_model",
    "Tradeoff": "intaglio.client.confidence",
    "Unreachable": "intaglio.client.server",
    "margin_for": "intaglio.client.confidence",
    "margins": "intaglio.client.confidence",
    "tradeoffs": "intaglio.client.confidence",
}
__all__ = list(_LAZY)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'intaglio.client' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
