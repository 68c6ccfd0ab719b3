"""Well-known networks rebuilt from code, with their published figures."""

from __future__ import annotations

from intaglio.catalogue.published import NETWORKS as NETWORKS
from intaglio.catalogue.published import Network as Network
from intaglio.catalogue.published import build as build
from intaglio.catalogue.published import find as find

__all__ = ["NETWORKS", "Network", "build", "find"]
