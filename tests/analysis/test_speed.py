"""Speeds are compared on a busy machine only if some runs had a core to themselves."""

import itertools

import pytest

from intaglio.analysis.speed import LONGEST, compare_speeds


class Machine:
    """A fake clock, and models that take CPU time; `waits` tells how long each run waits more."""

    def __init__(self, waits=()):
        self.wall = self.cpu = 0.0
        self.waits = itertools.chain(waits, itertools.repeat(0.0))
        self.order = []

    def clock(self):
        return self.wall, self.cpu

    def model(self, name, seconds):
        def run():
            self.order.append(name)
            self.cpu += seconds
            self.wall += seconds + next(self.waits)

        return run

    def compare(self, *seconds):
        models = [self.model(i, s) for i, s in enumerate(seconds)]
        return compare_speeds(models, self.clock)


def test_a_quiet_machine_tells_the_fastest_run_of_each():
    machine = Machine()
    assert machine.compare(0.030, 0.010).milliseconds == pytest.approx((30, 10))
    assert machine.order[:6] == [0, 1, 0, 1, 0, 1]  # interleaved


def test_waiting_runs_do_not_count():
    """Other programs double the time of long runs, and leave one short run in two alone."""
    load = itertools.cycle([0.030, 0.0, 0.030, 0.010, 0.0, 0.010])
    assert Machine(load).compare(0.030, 0.010).milliseconds == pytest.approx((30, 10))


def test_a_machine_that_is_always_busy_cannot_tell():
    """The long runs always wait. The fastest of each would say 6 times, not 3."""
    made = Machine(itertools.cycle([0.030, 0.0])).compare(0.030, 0.010)
    assert made.milliseconds == ()
    assert "of" in made.why_unknown
    assert "had to wait for a core" in made.why_unknown


def test_runs_that_never_agree_tell_nothing():
    """A core that slows down gives CPU times that are all different."""
    machine = Machine()
    slower = itertools.count(1)

    def run():
        seconds = 0.01 * 1.2 ** (60 - next(slower))
        machine.cpu += seconds
        machine.wall += seconds

    made = compare_speeds([run], machine.clock)
    assert made.milliseconds == ()
    assert "vary by more than 10%" in made.why_unknown


def test_slow_models_run_three_times():
    machine = Machine()
    assert machine.compare(2 * LONGEST, LONGEST).milliseconds == pytest.approx((6000, 3000))
    assert len(machine.order) == 6
