"""Install the peers that pyproject.toml names into this environment, and say what is missing.

python -m benchmarks.install

An engine that has no wheel for this machine must not keep the others out.
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
    """The requirements of the extras `zoo` and `peers`, without those on ourselves."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = extras["optional-dependencies"]
    return [r for r in extras["zoo"] + extras["peers"] if not r.startswith("intaglio")]


def install(requirements: list[str]) -> str | None:
    """None, or why pip could not."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    done = subprocess.run([*command, *requirements], capture_output=True, text=True)
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return (errors or ["ERROR: pip failed"])[-1] if done.returncode else None


def main() -> None:
    names = wanted()
    print(f"installing {', '.join(names)}: some minutes ...", flush=True)
    refused: dict[str, str] = {}
    if install(names) is not None:
        # torch keeps its version, whoever asks for it
        torch = [r for r in names if r.startswith("torch")]
        for i, name in enumerate(names, 1):
            print(f"[{i}/{len(names)}] {name}", flush=True)
            if why := install([name] if name in torch else [*torch, name]):
                print(f"could not install {name}; the comparison goes on without it: {why}")
                refused[name] = why
    REFUSED.write_text(json.dumps(refused))


if __name__ == "__main__":
    main()
