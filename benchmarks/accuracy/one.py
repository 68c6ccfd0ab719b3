"""One task and one engine in a process of its own: prints its score as JSON.

python -m benchmarks.accuracy.one TASK ENGINE FILE [--quick]

Scores of the peers are kept until their versions, the model, the code of the task or the folder of
pictures change.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.accuracy import Missing, Task, engines, files, printed, speech, text, tiny, vision

MODULES = (vision, tiny, speech, text, printed)
TASKS: dict[str, Task] = {name: task for m in MODULES for name, task in m.TASKS.items()}


def evaluate(task: Task, engine: str, quick: bool) -> dict[str, Any]:
    """The engine's score, and the seconds it took to quantise."""
    paths = task.files()
    floats = {name: engines.onnxruntime(path) for name, path in paths.items()}
    samples = task.calibration_by_file(floats)
    start = time.perf_counter()
    runs = {name: engines.ENGINES[engine](path, samples[name]) for name, path in paths.items()}
    seconds = time.perf_counter() - start
    answers = task.answers(runs, quick)
    right = task.answers(floats, quick) if task.agreement else []
    return {**asdict(task.score(answers, right)), "seconds": seconds}


def main() -> None:
    name, engine, out = sys.argv[1:4]
    quick, task = "--quick" in sys.argv, TASKS[name]
    try:
        kept = _kept(name, task, engine, quick)
        if kept and kept.exists():
            found = kept.read_text()
        else:
            found = json.dumps(evaluate(task, engine, quick))
            if kept:
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(found)
    except Missing as e:
        found = json.dumps({"missing": str(e)})
    Path(out).write_text(found)


def _kept(name: str, task: Task, engine: str, quick: bool) -> Path | None:
    """Where the score of a peer is kept; ours is always new."""
    if engine not in engines.PACKAGES:
        return None
    here = Path(__file__).parent
    code = {"data", "detect", "engines", "files", type(task).__module__.rpartition(".")[2]}
    code |= {m.__name__.rpartition(".")[2] for m in MODULES if name in m.TASKS}
    content = [(here / f"{stem}.py").read_bytes() for stem in sorted(code) if stem != "accuracy"]
    content += [p.read_bytes() for _, p in sorted(task.files().items())]
    versions = [f"{p} {importlib.metadata.version(p)}" for p in engines.PACKAGES[engine]]
    own = os.environ.get("INTAGLIO_IMAGENET")  # other pictures, other scores
    about = (versions, quick, own) if own else (versions, quick)
    key = hashlib.sha256(b"".join(content) + repr(about).encode()).hexdigest()[:16]
    return files.KEPT / "scores" / f"{name}-{engine.replace(' ', '-')}-{key}.json"


if __name__ == "__main__":
    main()
