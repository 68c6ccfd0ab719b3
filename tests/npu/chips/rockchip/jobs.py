"""Jobs in the simulator beside the interpreter, for tests."""

import numpy as np

import intaglio
from intaglio.npu.chips.rockchip import job
from intaglio.npu.chips.rockchip.run_job import JobMachine


def random_inputs(made, seed=0):
    """Random bytes for the inputs of a job."""
    chance = np.random.default_rng(seed)
    kinds = {True: np.uint8, False: np.int8}
    return {
        p.name: chance.integers(0, 256, p.shape).astype(np.uint8).view(kinds[p.is_unsigned])
        for p in made.inputs
    }


def meaning(compiled, feeds):
    """The interpreter's outputs by the ports' names."""
    made, found = compiled.job, {}
    for value, port in zip(compiled.graph.inputs, made.inputs, strict=True):
        given = feeds[port.name].view(np.uint8) ^ (0x80 if port.is_unsigned else 0)
        found[value.name] = given.view(np.int8)
    outputs = intaglio.interpret(compiled.graph, found).values()
    return {
        p.name: (v.view(np.uint8) ^ 0x80 if p.is_unsigned else v)
        for p, v in zip(made.outputs, outputs, strict=True)
    }


def check(compiled, seed=0):
    """All bytes of the words' results, read back from the file, are the interpreter's."""
    read = job.read(compiled.data)
    machine = JobMachine(read)
    for k in range(2):  # the second run finds what the first one left
        feeds = random_inputs(read, seed + k)
        found, wanted = machine.run(feeds), meaning(compiled, feeds)
        assert list(found) == list(wanted)
        for name, value in wanted.items():
            np.testing.assert_array_equal(found[name], value, err_msg=name)
    return wanted
