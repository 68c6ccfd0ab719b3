"""Every test verifies the graph after each pass."""

import os

os.environ.setdefault("INTAGLIO_DEBUG", "1")
