"""The queue: answers are never mixed, batches fit compiled sizes, limits hold."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.serve.models import rows, rows_model
from tests.test_state import counting

import intaglio
from intaglio.serve import batcher
from intaglio.serve.batcher import BatchSizes
from intaglio.serve.refusals import Refused
from intaglio.serve.served_model import ServedModel
from intaglio.serve.settings import ModelSettings


def with_model(work, batches=(1, 2, 4), **keywords):
    """Run `work(model)` in an event loop."""

    async def main():
        chosen = ModelSettings(threads=1, **keywords)
        model = await ServedModel.load("m", "1", rows_model(batches), chosen)
        try:
            return await asyncio.wait_for(work(model), 30)
        finally:
            await asyncio.wait_for(model.close(), 30)

    return asyncio.run(main())


@given(
    requests=st.lists(
        st.tuples(st.integers(1, 4), st.integers(0, 3), st.booleans(), st.booleans()),
        min_size=1,
        max_size=24,
    ),
    inline=st.booleans(),
    delay=st.sampled_from([0, 300]),
    instances=st.integers(1, 2),
)
@settings(max_examples=25, deadline=None)
def test_every_request_gets_its_own_answer(requests, inline, delay, instances):
    """Rows, priorities, clients that go and pauses are drawn; the sum of rows is accounted for."""

    async def work(model):
        model.batcher.inline = inline
        sent = []
        for i, (n, priority, gone, pause) in enumerate(requests):
            x = rows(*(100 * i + k for k in range(n)))
            call = model.infer(
                {"x": x}, {"priority": priority}, SimpleNamespace(disconnected=gone, resume=None)
            )
            sent.append((x, gone, asyncio.ensure_future(call)))
            if pause:
                await asyncio.sleep(0)
        answers = await asyncio.gather(*(task for *_, task in sent), return_exceptions=True)
        for (x, gone, _), answer in zip(sent, answers, strict=True):
            if gone:
                assert isinstance(answer, Refused)
                assert answer.status == 499
            else:
                assert np.array_equal(answer["y"], 2 * x + 1)
        s = model.statistics
        assert s.inferences == sum(len(x) for x, gone, _ in sent if not gone)
        assert s.refused.get("client_gone", 0) == sum(gone for _, gone, _ in sent)
        assert set(s.batches) <= {1, 2, 3, 4}
        assert model.batcher.waiting == model.batcher._rows == 0

    with_model(work, max_delay_us=delay, instances=instances)


def test_sizes_pad_where_it_pays():
    even = BatchSizes({1: 1.0, 2: 2.0, 4: 4.0, 8: 8.0}, [1, 2, 4, 8])
    assert [even.choose(n) for n in (1, 3, 5, 8)] == [1, 1, 1, 1]  # batches gain nothing
    steep = BatchSizes({1: 1.0, 2: 1.1, 4: 1.2, 8: 1.3}, [1, 2, 4, 8])
    assert [steep.choose(n) for n in (1, 2, 3, 5, 20)] == [1, 2, 4, 8, 8]
    ranged = BatchSizes({1: 1.0, 4: 1.3}, range(1, 5))
    assert [ranged.choose(n) for n in (1, 2, 3, 4)] == [1, 2, 3, 4]


def test_times_that_other_programs_made_longer_are_corrected_by_later_runs():
    sizes = BatchSizes({1: 5.0, 2: 2.2, 4: 4.4}, [1, 2, 4])
    assert [sizes.choose(n) for n in (1, 4)] == [2, 2]
    sizes.ran(1, 9.0)
    assert sizes.choose(1) == 2
    sizes.ran(1, 1.0)
    assert [sizes.choose(n) for n in (1, 4)] == [1, 1]
    ranged = BatchSizes({1: 1.0, 4: 1.3}, range(1, 5))
    ranged.ran(2, 0.5)
    assert [ranged.choose(n) for n in (1, 2, 3, 4)] == [2, 2, 2, 2]


class Blocked:
    """Runs of a model wait until they are let go."""

    def __init__(self, model):
        model.batcher.inline = False
        model.batcher.sizes = BatchSizes({1: 1.0, 2: 1.1, 4: 1.2}, [1, 2, 4])
        model.batcher.sizes.ran = lambda size, seconds: None
        self.go, self.sizes = threading.Event(), []
        instance = model.batcher._idle[0].instance
        run = instance.run

        def wait(jobs, size):
            assert self.go.wait(20)
            self.sizes.append([float(j.inputs["x"][0, 0]) for j in jobs])
            return run(jobs, size)

        instance.run = wait


async def submitted(model, value, **parameters):
    task = asyncio.ensure_future(model.infer({"x": rows(value)}, parameters))
    await asyncio.sleep(0.005)
    return task


def test_full_queue_deadline_priority_and_gone_clients():
    async def work(model):
        blocked = Blocked(model)
        running = await submitted(model, 0)  # in the instance
        low = await submitted(model, 1, priority=9)
        high = await submitted(model, 2, priority=1)
        late = await submitted(model, 3, timeout=1000)  # 1 ms
        with pytest.raises(Refused) as e:
            await late
        assert e.value.status == 504
        cancelled = await submitted(model, 4)
        with pytest.raises(Refused) as e:
            await (await submitted(model, 5))
        assert (e.value.status, e.value.retry_after) == (429, 1)
        cancelled.cancel()
        await asyncio.sleep(0)
        assert model.batcher.waiting == 2
        blocked.go.set()
        for task, value in ((running, 1), (low, 3), (high, 5)):
            assert np.array_equal((await task)["y"], rows(value))
        assert blocked.sizes == [[0], [2, 1]]
        assert model.statistics.refused == {"deadline": 1, "client_gone": 1}

    with_model(work, max_queue=3)


def test_delay_joins_requests_and_preferred_sizes_do_not_wait():
    async def work(model):
        first = await submitted(model, 1)
        assert not first.done()
        second = await submitted(model, 2)  # two are preferred
        assert first.done()
        assert second.done()
        assert model.statistics.executions == 1

    with_model(work, max_delay_us=5_000_000, preferred=(2,))


def test_an_error_reaches_only_its_request():
    async def work(model):
        blocked = Blocked(model)
        session = model.batcher._idle[0].instance._sessions[4]
        others = model.batcher._idle[0].instance._sessions[1]
        real = others.run
        others.run = lambda inputs, out=None: fail_on(9, inputs, real)
        session.run = lambda inputs, out=None: fail_on(9, inputs, session.__class__.run)
        first = await submitted(model, 0)
        tasks = [await submitted(model, v) for v in (1, 9, 2)]
        blocked.go.set()
        await first
        got = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(got[1], Refused)
        assert np.array_equal(got[0]["y"], rows(3))
        assert np.array_equal(got[2]["y"], rows(5))

    def fail_on(value, inputs, run):
        if (inputs["x"] == value).any():
            raise batcher.Refused(400, "bad row")
        return run(inputs)

    with_model(work)


@pytest.mark.parametrize("inline", [True, False])
def test_a_batch_that_cannot_run_is_refused(inline):
    async def work(model):
        def fail(jobs, size):
            raise MemoryError

        model.batcher.inline = inline
        model.batcher._idle[0].instance.run = fail
        for _ in range(2):
            with pytest.raises(Refused) as e:
                await model.infer({"x": rows(1)})
            assert (e.value.status, e.value.retry_after) == (503, 1)
        assert model.statistics.refused == {"unavailable": 2}

    with_model(work)


def test_unloading_answers_what_waits():
    async def work(model):
        blocked = Blocked(model)
        tasks = [await submitted(model, v) for v in (1, 2, 3)]
        closing = asyncio.ensure_future(model.batcher.close())
        await asyncio.sleep(0)
        with pytest.raises(Refused) as e:
            await model.infer({"x": rows(4)})
        assert e.value.status == 503
        blocked.go.set()
        await closing
        assert [float((await t)["y"][0, 0]) for t in tasks] == [3, 5, 7]
        model.batcher._idle.clear()  # closed already

    with_model(work)


def test_a_sequence_whose_client_goes_while_it_runs_does_not_stop_the_others():
    """The last request of a sequence is cancelled in its run: the loop does not wait for it, and
    the state is dropped when it has been idle."""

    async def main():
        chosen = ModelSettings(threads=1, sequence_idle_s=1)
        model = await ServedModel.load("m", "1", intaglio.compile(counting()), chosen)
        model.batcher.inline = False
        instance, go = model.batcher._idle[0].instance, threading.Event()
        sequences, run, let_go = model.sequences, instance._alone, []
        x = {"x": np.zeros(3, np.float32)}

        def wait(job, session):
            with session._turn.lock:
                let_go.append(go.wait(3))
            return run(job, session)

        instance._alone = wait
        parameters = {"sequence_id": 1, "sequence_start": True, "sequence_end": True}
        task = asyncio.ensure_future(model.infer(x, parameters))
        while not model.batcher._busy:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)
        go.set()
        while model.batcher._busy:
            await asyncio.sleep(0.001)
        assert let_go == [True]
        sequences._idle_s = 0.0
        sequences.sweep()
        assert not len(sequences)
        await model.close()

    asyncio.run(main())
