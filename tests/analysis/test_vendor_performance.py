"""Speed of vendors' files from their commands, and of models that are compiled into them."""

from __future__ import annotations

import json

import pytest
from tests.npu.chips.k210.quantized_cnn import random_cnn
from tests.test_cli import intaglio as command_line

from intaglio.analysis import vendor_performance
from intaglio.analysis.whatif import Model, WhatIf
from intaglio.npu.chips.bm1684x.compile import compile_bmodel
from intaglio.npu.chips.k210.compile import compile_kmodel
from intaglio.targets import chip as chips


@pytest.mark.parametrize("name", ["bm1684x", "bm1688", "sg2260", "k210"])
def test_a_model_is_timed_by_the_commands_of_its_file(name):
    graph, chip = random_cnn(1), chips.load(name)
    model = Model(graph)
    found = model.performance(name, WhatIf())
    assert found.source.startswith(("the commands of the bmodel", "the layers of the kmodel"))
    made = compile_kmodel(graph) if name == "k210" else compile_bmodel(graph, chip)
    file = vendor_performance.READERS[chip.file](made.data)
    assert file.chip == found.chip == name
    assert file.npu_milliseconds == pytest.approx(found.npu_milliseconds, rel=0.05)
    assert sum(r.microseconds for r in found.layers) == pytest.approx(found.milliseconds * 1e3)
    assert sum(r.bytes for r in file.layers) == sum(r.bytes for r in found.layers)
    half = vendor_performance.READERS[chip.file](made.data, clock=found.clock / 2)
    assert file.npu_milliseconds < half.npu_milliseconds < 2.001 * file.npu_milliseconds


def test_other_figures_need_a_program_of_our_own():
    model = Model(random_cnn(1))
    assert "Intaglio's own" in model.performance("bm1688", WhatIf(cores=2)).source
    model.own_program = True
    assert "Intaglio's own" in model.performance("bm1688", WhatIf()).source


def test_perf_of_a_file(tmp_path):
    path = tmp_path / "m.bmodel"
    compile_bmodel(random_cnn(1), chips.load("bm1684x")).save(path)
    pages = ("--trace", tmp_path / "t.json", "--svg", tmp_path / "t.svg")
    done = command_line("perf", path, *pages)
    assert done.returncode == 0, done.stderr
    assert "times come from the commands of the bmodel" in " ".join(done.stdout.split())
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert {e["args"]["name"] for e in events if e["ph"] == "M"} == {"CPU", "TIU", "DMA"}
    assert "conv" in (tmp_path / "t.svg").read_text()
    refused = command_line("perf", path, "--target", "bm1684x")
    assert refused.returncode == 2
    assert "a bmodel is compiled already" in refused.stderr
