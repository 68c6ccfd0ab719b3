"""The live page of a model, served on this machine: `intaglio ui`.

with intaglio.ui.start("model.itg") as page:
    print(page.url)
"""

from __future__ import annotations

from intaglio.ui.server import LivePage as LivePage
from intaglio.ui.server import start as start
from intaglio.ui.workbench import Workbench as Workbench

__all__ = ["LivePage", "Workbench", "start"]
