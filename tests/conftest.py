"""Every test verifies the graph after each pass."""

import os

os.environ.setdefault("INTAGLIO_DEBUG", "1")
os.environ.pop("COLUMNS", None)  # pytest-xdist sets it; commands fit their tables to it
