"""The process that runs one model for a server: `python -m intaglio.serve.worker_process FD`.

It ends when the server does: its socket is then closed.
"""

from __future__ import annotations

import signal
import socket
import sys
from pathlib import Path

from intaglio.errors import IntaglioError
from intaglio.package import Package
from intaglio.serve.instance import Instance
from intaglio.serve.jobs import Job
from intaglio.serve.refusals import Refused
from intaglio.serve.served_model import Opened
from intaglio.serve.settings import ModelSettings
from intaglio.serve.worker_messages import (
    Answer,
    Done,
    Open,
    Request,
    Run,
    packed,
    receive,
    send,
    specs_of,
    unpacked,
)
from intaglio.serve.worker_messages import Opened as OpenedAnswer
from intaglio.session import Session


def main(fd: int) -> None:
    """Open the package that the first message names, and run batches until the socket closes."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the server decides when this ends
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=fd) as connection:
        wanted = receive(connection, Open)
        source = Path(wanted.path) if wanted.path else Package(wanted.package)
        try:
            opened = Opened(source, ModelSettings(threads=wanted.threads))
        except (IntaglioError, OSError, MemoryError) as e:
            send(connection, OpenedAnswer(error=str(e) or type(e).__name__))
            return
        s = opened.signature
        send(
            connection,
            OpenedAnswer(
                "", specs_of(s.inputs), specs_of(s.outputs), s.plans, s.stateful, opened.times
            ),
        )
        sequences: dict[int, Session] = {}
        while True:
            try:
                batch = receive(connection, Run)
            except EOFError:
                return
            for key in batch.ended:
                if (ended := sequences.pop(key, None)) is not None:
                    ended.close()
            send(connection, _run(batch, opened, sequences))


def _run(batch: Run, opened: Opened, sequences: dict[int, Session]) -> Done:
    instance: Instance = opened.instances[0]
    jobs = []
    for request in batch.requests:
        job = Job(unpacked(request.inputs), request.rows)
        if request.sequence:
            job.session = _session(request, opened, sequences)
        jobs.append(job)
    ran = instance.run(jobs, batch.size)
    answers = [_answer(job, opened) for job in jobs]
    return Done(ran.input_ns, ran.infer_ns, ran.output_ns, answers)


def _session(request: Request, opened: Opened, sequences: dict[int, Session]) -> Session:
    session = sequences.get(request.sequence)
    if session is None:
        session = sequences[request.sequence] = opened.first.clone()
    if request.reset:
        session.reset()
    return session


def _answer(job: Job, opened: Opened) -> Answer:
    if job.error is None:
        assert job.outputs is not None
        return Answer(packed(job.outputs, opened.signature.outputs))
    status = job.error.status if isinstance(job.error, Refused) else 0
    return Answer(error=str(job.error) or type(job.error).__name__, status=status)


if __name__ == "__main__":
    main(int(sys.argv[1]))
