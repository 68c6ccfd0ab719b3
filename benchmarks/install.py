"""Install the peers of pyproject.toml into this environment, and report those that fail.

python -m benchmarks.install

An engine without a wheel for this machine does not stop the installation of the others.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

from benchmarks.peers import REFUSED

ROOT = Path(__file__).parents[1]


def wanted() -> list[str]:
    """The requirements of the extras `zoo` and `peers`, without Intaglio itself."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = extras["optional-dependencies"]
    return [r for r in extras["zoo"] + extras["peers"] if not r.startswith("intaglio")]


def install(requirements: list[str]) -> str | None:
    """Install with pip; returns None, or the reason for a failure."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    done = subprocess.run([*command, *requirements], capture_output=True, text=True)
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return (errors or ["ERROR: pip failed"])[-1] if done.returncode else None


def main() -> None:
    names = wanted()
    print(f"installing {', '.join(names)}: some minutes ...", flush=True)
    refused: dict[str, str] = {}
    if install(names) is not None:
        # keep the version of torch, whatever a package requires
        torch = [r for r in names if r.startswith("torch")]
        for i, name in enumerate(names, 1):
            print(f"[{i}/{len(names)}] {name}", flush=True)
            if why := install([name] if name in torch else [*torch, name]):
                print(f"could not install {name}, it is left out of the comparison: {why}")
                refused[name] = why
    REFUSED.write_text(json.dumps(refused))


if __name__ == "__main__":
    main()
