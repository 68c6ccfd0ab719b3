"""Optional dependencies: the command that installs the packages of an extra."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires


def install_command(extra: str) -> str:
    """The command that installs what `extra` adds.

    It names the packages themselves, so that it is right for a checkout as well as for an
    installed wheel, and installs Intaglio itself never again.
    """
    needed = [f'"{r}"' for r in requirements(extra)]
    return f"pip install {' '.join(needed)}" if needed else f'pip install ".[{extra}]"'


def requirements(extra: str) -> list[str]:
    """The requirements of an extra; none if Intaglio is imported without being installed."""
    try:
        declared = requires("intaglio") or []
    except PackageNotFoundError:
        return []
    marked = (line.partition(";") for line in declared)
    wanted = re.compile(rf"""extra\s*==\s*['"]{re.escape(extra)}['"]""")
    return [requirement.strip() for requirement, _, marker in marked if wanted.search(marker)]
