"""Instances in processes of their own: a package that crashes ends its process, not the server.

The requests of that batch get 503. The process is replaced at once; until the new one is warm, the
model is not ready and its queue waits.
"""

from __future__ import annotations

import itertools
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from time import perf_counter_ns

from intaglio.errors import BadInput
from intaglio.package import Package
from intaglio.serve.instance import Ran
from intaglio.serve.jobs import Job
from intaglio.serve.refusals import Refused, bad_request
from intaglio.serve.request_log import log
from intaglio.serve.settings import ModelSettings
from intaglio.serve.signature import Signature
from intaglio.serve.worker_messages import (
    Answer,
    Done,
    Open,
    Opened,
    Request,
    Run,
    packed,
    receive,
    send,
    tensor_specs,
    unpacked,
)

START_S = 300.0  # for opening and warming up
END_S = 10.0  # for ending
PAUSE_S = 1  # before a process that ended at once is started again; doubled each time
MAX_PAUSE_S = 60
WAIT_S = 10.0  # that a batch waits for a new process
NOTICE_S = 0.001


class IsolatedInstance:
    """Runs one batch at a time in another process. Not for several threads at once.

    A thread waits for the process to end, and starts the next one.
    """

    def __init__(self, source: Path | Package, settings: ModelSettings):
        self._source, self._threads = source, settings.threads
        self.generation = 0  # counts processes
        self.ended: list[int] = []  # sequences whose state is no longer needed
        self._ready, self._closed = threading.Event(), threading.Event()
        self._process, self._connection, opened = self._start()
        self.times = opened.times
        self.signature = Signature(
            tensor_specs(opened.inputs), tensor_specs(opened.outputs), opened.plans, opened.stateful
        )
        self._watcher = threading.Thread(target=self._watch, name="intaglio-watch", daemon=True)
        self._watcher.start()

    @property
    def alive(self) -> bool:
        """Whether the process is there, and warm."""
        return self._ready.is_set()

    def run(self, jobs: list[Job], size: int) -> Ran:
        """Answer these requests; if the process ends meanwhile, all of them are refused."""
        started = perf_counter_ns()
        for job in jobs:
            job.started = started
        done = Done(0, 0, 0, [])
        if not self._ready.wait(WAIT_S):
            _refuse(jobs, Refused(503, "the process of the model does not start", PAUSE_S))
        else:
            connection, generation = self._connection, self.generation
            try:
                requests = [self._request(job) for job in jobs]
                ended, self.ended = self.ended, []
                send(connection, Run(size, requests, ended))
                done = receive(connection, Done)
            except Refused as e:  # of a sequence, which comes alone
                _refuse(jobs, e)
            except (EOFError, OSError):
                words = "the process of the model ended; another is being started"
                _refuse(jobs, Refused(503, words, PAUSE_S))
                while self._ready.is_set() and self.generation == generation:
                    time.sleep(NOTICE_S)  # until the watcher knows
        for job, answer in zip(jobs, done.answers, strict=False):
            _take(job, answer)
        rows = sum(job.rows for job in jobs)
        return Ran(rows, size or rows, started, done.input_ns, done.infer_ns, done.output_ns)

    def close(self) -> None:
        self._closed.set()
        self._connection.close()  # which ends the process
        self._watcher.join()

    def _request(self, job: Job) -> Request:
        sequence, reset = 0, False
        if isinstance(job.session, RemoteState):
            sequence, reset = job.session.used(self.generation)
        return Request(job.rows, packed(job.inputs, self.signature.inputs), sequence, reset)

    # ---- the process ---------------------------------------------------------------------------
    def _start(self) -> tuple[subprocess.Popen[bytes], socket.socket, Opened]:
        """A process that is warm, and what it has opened. BadInput if it cannot."""
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "intaglio.serve.worker_process", str(theirs.fileno())]
        with theirs:
            process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
            )
        ours.settimeout(START_S)
        in_memory = isinstance(self._source, Package)
        package = self._source.bytes if isinstance(self._source, Package) else b""
        try:
            send(ours, Open("" if in_memory else str(self._source), package, self._threads))
            opened = receive(ours, Opened)
        except (EOFError, OSError):
            ours.close()
            raise BadInput(f"the process that opens the package ended: {_end(process)}") from None
        if opened.error:
            ours.close()
            _end(process)
            raise BadInput(opened.error)
        ours.settimeout(None)
        self.generation += 1
        self._ready.set()
        return process, ours, opened

    def _watch(self) -> None:
        """Replace the process whenever it ends, until `close`."""
        pause = PAUSE_S
        while True:
            started = time.monotonic()
            self._process.wait()
            self._ready.clear()
            if self._closed.is_set():
                return
            log.error("process of a model ended", how=_how(self._process.returncode))
            self._connection.close()
            if time.monotonic() - started > MAX_PAUSE_S:
                pause = PAUSE_S
            while not self._closed.wait(pause if time.monotonic() - started < pause else 0):
                try:
                    self._process, self._connection, _ = self._start()
                    break
                except BadInput as e:
                    log.error("process of a model does not start", reason=str(e))
                    pause = min(2 * pause, MAX_PAUSE_S)
                    started = time.monotonic()
            if self._closed.is_set():
                self._connection.close()
                _end(self._process)
                return


class RemoteState:
    """The state of a sequence, which lies in the process of an instance."""

    _numbers = itertools.count(1)

    def __init__(self, instance: IsolatedInstance):
        self._instance, self._number = instance, next(self._numbers)
        self._generation, self._reset = 0, True

    def reset(self) -> None:
        """The next request starts anew."""
        self._reset = True

    def used(self, generation: int) -> tuple[int, bool]:
        """The number of the sequence, and whether this request starts it anew."""
        if self._reset:
            self._generation = generation
        elif self._generation != generation:
            raise bad_request("the state of the sequence was lost with its process; start it anew")
        reset, self._reset = self._reset, False
        return self._number, reset

    def close(self) -> None:
        self._instance.ended.append(self._number)


class IsolatedPackage:
    """A package that is open and warm in processes of its own: what `Opened` is in this one."""

    def __init__(self, source: Path | Package, settings: ModelSettings):
        self.instances: list[IsolatedInstance] = []
        try:
            self.instances.append(IsolatedInstance(source, settings))
            one = self.instances[0]
            self.signature, self.times, self.first = one.signature, one.times, self
            for _ in range(0 if one.signature.stateful else settings.instances - 1):
                self.instances.append(IsolatedInstance(source, settings))
        except BaseException:
            for instance in self.instances:
                instance.close()
            raise

    def clone(self) -> RemoteState:
        """The state of a new sequence."""
        return RemoteState(self.instances[0])

    def close(self) -> None:
        """The instances are closed one by one."""


def _refuse(jobs: list[Job], error: Refused) -> None:
    for job in jobs:
        job.error = error


def _end(process: subprocess.Popen[bytes]) -> str:
    """Wait for a process whose socket is closed; how it ended."""
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return _how(process.returncode)


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _take(job: Job, answer: Answer) -> None:
    if answer.status:
        job.error = Refused(answer.status, answer.error, 1 if answer.status == 503 else None)
    elif answer.error:
        job.error = RuntimeError(answer.error)
    else:
        job.outputs = unpacked(answer.outputs)
