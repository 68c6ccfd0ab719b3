"""The fuzzer of model structures: what counts as a failure, and a few mutants of each format."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from tests import fuzz, fuzz_structure
from tests.fuzz_structure import difference, in_child

from intaglio.errors import BadInput


def _crash() -> list[np.ndarray]:
    os.kill(os.getpid(), signal.SIGSEGV)
    return []


def _refuse() -> list[np.ndarray]:
    raise BadInput("no such thing; give another")


def _fail() -> list[np.ndarray]:
    raise ZeroDivisionError("a mistake of ours")


def test_a_child_tells_outputs_refusals_and_crashes():
    assert in_child(lambda: [np.arange(3)], (BadInput,)).arrays[0].tolist() == [0, 1, 2]
    assert in_child(_refuse, (BadInput,)).refused == "no such thing; give another"
    assert in_child(_crash, (BadInput,)).failed == "ended by signal SIGSEGV"
    assert in_child(_fail, (BadInput,)).failed == "ZeroDivisionError: a mistake of ours"


def test_differences_are_told():
    a = np.array([1.0, 2.0], np.float32)
    assert not difference([a], [a + 1e-4])
    assert not difference([a], [np.array([1.0, np.inf], np.float32)])
    assert "differs by 1" in difference([a + 1], [a])
    assert "differs by nan" in difference([a * np.float32("nan")], [a])
    assert "theirs int8" in difference([a], [a.astype(np.int8)])
    assert "0 outputs" in difference([], [a])
    assert not difference([np.array([3], np.int8)], [np.array([4], np.int8)])
    assert "differs" in difference([np.array([3], np.int32)], [np.array([4], np.int32)])


@pytest.mark.parametrize("kind", fuzz_structure.FORMATS)
def test_a_few_mutants_agree(kind: str):
    pytest.importorskip("ai_edge_litert" if kind == "tflite" else "onnxruntime")
    outcomes, failures = fuzz_structure.fuzz(kind, 10, 1)
    assert not failures
    assert sum(outcomes.values()) == 10
    assert outcomes["agree"] >= 2


def test_all_fuzzers_have_their_turn(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture):
    calls = []

    def run(command: list[str]) -> object:
        calls.append(command)
        return type("Done", (), {"returncode": int("tests.fuzz_package" in command)})

    monkeypatch.setattr(fuzz.subprocess, "run", run)
    assert fuzz.main(["--minutes", "0", "--seed", "5"]) == 1
    assert [c[2] for c in calls] == [r[0] for r in fuzz.ROUNDS]
    out = capfd.readouterr().out
    assert "seed 5" in out
    assert f"failed: python {' '.join(calls[0][1:])}" in out
    root = Path(__file__).parents[1]
    assert all((root / f"{r[0].replace('.', '/')}.py").exists() for r in fuzz.ROUNDS)
