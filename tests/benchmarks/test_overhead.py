"""The overhead benchmark: the chain that it measures, and its report against the goals."""

from benchmarks import overhead


def test_a_chain_has_as_many_steps_as_asked():
    assert [len(overhead.chain(n).plan.steps) for n in (1, 10)] == [1, 10]


def test_the_report_has_every_figure():
    text = overhead.run(seconds=0.01)
    for words in (
        "each more",
        "Python, out=",
        "Python, bind",
        "a step costs",
        "from C: ",
        "0.48 million MACs",
    ):
        assert words in text


def test_findings_stand_beside_the_goals():
    made = overhead.Call(1, python=15.0, out=15.5, bound=13.0, c=12.0, kernels=11.5)
    said = overhead.findings({1: 0.02, 2: 0.025}, [made], 482_000)
    assert said[0] == "a step costs 25 ns on top of its kernel (goal: 1000)"
    assert "15.0 µs (goal: 20), 3.0 of it for Python" in said[1]
    assert said[2] == "bound inputs and outputs: 13.0 µs, 1.0 of it for Python"
    assert "12.0 µs (goal: 5), 0.5 of it on top of the kernels" in said[3]
