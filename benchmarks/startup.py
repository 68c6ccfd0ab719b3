"""What a user waits for: import, compile, open. Minimum of several fresh processes or calls."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import intaglio
from benchmarks import models


def best(run: Callable[[], Any], times: int) -> float:
    """Milliseconds of the fastest of `times` calls."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return min(taken) * 1e3


def import_time(module: str, times: int = 5) -> float:
    """Milliseconds of `import module` in a fresh interpreter, without the interpreter's own."""

    def run(code: str) -> float:
        return best(lambda: subprocess.run([sys.executable, "-c", code], check=True), times)

    return run(f"import {module}") - run("pass")


def main() -> None:
    ours, numpys = import_time("intaglio"), import_time("numpy")
    print(f"import intaglio: {ours:.0f} ms (numpy alone: {numpys:.0f} ms)\n")
    import onnxruntime

    onnxruntime.set_default_logger_severity(3)
    print("| model | onnx MB | compile s | itg MB | open ms | onnxruntime session ms |")
    print("|---|---|---|---|---|---|")
    for path in models.available():
        package = intaglio.compile(path, dims=models.dims(path))  # warm: imports and file cache
        dims = models.dims(path)
        compiling = best(lambda path=path, dims=dims: intaglio.compile(path, dims=dims), 2)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model.itg"
            package.save(file)
            opening = best(lambda file=file: intaglio.open(file, threads=1).close(), 10)
            size = file.stat().st_size / 1e6
        peer = best(lambda path=path: onnxruntime.InferenceSession(str(path)), 3)
        print(
            f"| {path.stem} | {path.stat().st_size / 1e6:.2f} | {compiling / 1e3:.2f} | {size:.2f} "
            f"| {opening:.2f} | {peer:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
