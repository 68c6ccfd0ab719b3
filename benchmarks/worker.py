"""One engine with one model in its own process, which isolates threads, memory and crashes.

Engines in one process disturb each other (spinning idle threads, two OpenMP libraries), and a crash
would end the whole comparison. The driver lets one worker run at a time.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.models import Case
from benchmarks.peers import Array, Refused

CACHE = Path(
    os.environ.get("INTAGLIO_BENCH_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "intaglio" / "bench"
)
CONVERTING, LOADING, RUNNING = 300.0, 120.0, 60.0  # time limits of a peer in seconds
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
SPAWN = multiprocessing.get_context("spawn")


class Worker:
    """The driver's handle of an engine's process."""

    def __init__(self, engine: str, threads: int, precision: str = "f32") -> None:
        self.engine, self.threads = engine, threads
        self.log = tempfile.NamedTemporaryFile(prefix="peer", suffix=".log")  # noqa: SIM115
        self.pipe, far = SPAWN.Pipe()
        self.process = SPAWN.Process(
            target=_serve, args=(far, engine, threads, precision, self.log.name), daemon=False
        )
        self.process.start()
        far.close()

    def ask(self, what: str, *arguments: Any, seconds: float = RUNNING) -> Any:
        """Send a request and return the answer; Refused on failure, crash or timeout."""
        try:
            self.pipe.send((what, arguments))
            if not self.pipe.poll(seconds):
                self.kill()
                raise Refused(f"{what} took longer than {seconds:.0f} s")
            fine, answer = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join(5)
            raise Refused(f"{what} {_death(self.process.exitcode)}{self._last_words()}") from None
        if not fine:
            raise Refused(answer)
        return answer

    def cpu_seconds(self) -> float:
        """Processor time of the process, all threads."""
        return cpu_seconds(self.process.pid or 0)

    def kill(self) -> None:
        """End the process and its children, such as a compiler."""
        with contextlib.suppress(ProcessLookupError):  # its process group may not exist yet
            pid = self.process.pid or 0
            os.killpg(pid, signal.SIGKILL) if os.getpgid(pid) == pid else self.process.kill()

    def close(self) -> None:
        self.pipe.close()  # a process that is not stuck ends now
        self.process.join(3)
        if self.process.is_alive():
            self.kill()
        self.process.join()
        self.log.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _last_words(self) -> str:
        lines = [s for s in Path(self.log.name).read_text(errors="replace").splitlines() if s]
        return f": {lines[-1][:120]}" if lines else ""


def convert(engine: str, case: Case, threads: int, precision: str = "f32") -> tuple[Path, float]:
    """The file that the engine loads, and the seconds of its conversion.

    Our package is made again each time; the caller removes its folder. A peer's file is cached
    until its version, the model or the conversion code changes. If the conversion takes longer than
    the peer's PATIENCE, the peer's fallback `instead` is used.
    """
    if engine in (peers.OURS, peers.FLOAT):
        return _convert(engine, case, threads, precision, Path(tempfile.mkdtemp(prefix="itg")))
    module = peers.module(engine, precision)
    if not hasattr(module, "convert"):
        return case.path, 0.0
    made_by = "-".join([engine, *(peers.versions(engine, precision) or {}).values()])
    code = inspect.getsource(module).partition("\nclass Runner")[0].encode()
    content = hashlib.sha256(case.path.read_bytes() + code).hexdigest()[:12]
    folder = CACHE / made_by / "-".join([case.name, content, *[precision] * (precision != "f32")])
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        apart = Path(tempfile.mkdtemp(dir=folder.parent))  # two runs may convert at once
        print(f"{case.name}: converting for {engine} ...", file=sys.stderr, flush=True)
        try:
            try:
                file, seconds = _convert(engine, case, threads, precision, apart)
                name = file.relative_to(apart) if apart in file.parents else file
                (apart / "made").write_text(f"{name}\n{seconds}")
            except Refused as e:
                if "took longer" in str(
                    e
                ):  # it may succeed on an idle machine: do not cache the failure
                    raise
                (apart / "refused").write_text(str(e))
            with contextlib.suppress(OSError):  # another process was faster
                apart.rename(folder)
        finally:
            shutil.rmtree(apart, ignore_errors=True)
    if (folder / "refused").exists():
        raise Refused((folder / "refused").read_text())
    name, seconds = (folder / "made").read_text().split("\n")
    return folder / name, float(seconds)


def _convert(
    engine: str, case: Case, threads: int, precision: str, folder: Path
) -> tuple[Path, float]:
    module, made = peers.module(engine, precision), None
    limits = {"convert": getattr(module, "PATIENCE", CONVERTING), "instead": CONVERTING}
    for way, seconds in limits.items():
        try:
            with Worker(engine, threads, precision) as worker:
                made = worker.ask("convert", case, folder, way, seconds=seconds)
            break
        except Refused as e:
            if "took longer" not in str(e) or way == "instead" or not hasattr(module, "instead"):
                raise
    assert made is not None
    found: tuple[Path, float] = made
    return found


def loaded_bytes(file: Path) -> int:
    """Bytes of the file and of the weights file with the same stem."""
    beside = [file.with_suffix(".bin")] if file.suffix in (".xml", ".param") else []
    return sum(f.stat().st_size for f in [file, *beside])


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        return f"died of {signal.Signals(-code).name}"
    return f"ended with code {code}"


def cpu_seconds(pid: int) -> float:
    """Processor time of a process, with its finished children."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


# ---- in the process -----------------------------------------------------------------------------
def _serve(pipe: Connection, engine: str, threads: int, precision: str, log: str) -> None:
    os.setsid()  # a process group, so that children can be ended too
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if 1 < threads < len(os.sched_getaffinity(0)):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    served = _Served(engine, threads, precision)
    while True:
        try:
            what, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, getattr(served, what)(*arguments)))
        except Refused as e:
            pipe.send((False, str(e)))
        except BaseException as e:
            traceback.print_exc()
            said = (str(e).strip().splitlines() or [""])[0]
            pipe.send((False, f"{what}: {type(e).__name__}: {said[:160]}"))


class _Served:
    def __init__(self, engine: str, threads: int, precision: str) -> None:
        self.module, self.how = peers.module(engine, precision), (threads,)
        if hasattr(self.module, "PRECISIONS"):
            self.how += ("f32" if engine == peers.FLOAT else precision,)

    def convert(self, case: Case, folder: Path, way: str = "convert") -> tuple[Path, float]:
        importlib.import_module(self.module.ENGINE)
        start = time.perf_counter()
        file = getattr(self.module, way)(case, folder, *self.how)
        return file, time.perf_counter() - start

    def load(self, file: Path, feeds: dict[str, Array]) -> dict[str, float]:
        """Milliseconds of load and first run, and peak memory above import in MB."""
        start = time.perf_counter()
        importlib.import_module(self.module.ENGINE)
        imported = time.perf_counter()
        before = _memory("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak of import
        begun = time.perf_counter()
        self.runner = self.module.load(file, feeds, *self.how)
        loaded = time.perf_counter()
        self.runner.run()
        ran = time.perf_counter()
        for _ in range(3):
            self.runner.run()
        return {
            "import": (imported - start) * 1e3,
            "load": (loaded - begun) * 1e3,
            "first": (ran - loaded) * 1e3,
            "rss": (_memory("VmHWM") - before) / 1e3,
        }

    def outputs(self) -> list[Array]:
        return self.runner.outputs()

    def burst(self, seconds: float, least: int, clock: str) -> list[float]:
        """Milliseconds of each run, after one warm-up run."""
        run, now, taken = self.runner.run, CLOCKS[clock], []
        run()
        end = time.perf_counter() + seconds
        while len(taken) < least or time.perf_counter() < end:
            start = now()
            run()
            taken.append((now() - start) * 1e3)
        return taken


def _memory(field: str) -> float:
    """Kilobytes of this process, from its status file."""
    status = Path("/proc/self/status").read_text()
    return float(status.partition(f"{field}:")[2].split()[0])
