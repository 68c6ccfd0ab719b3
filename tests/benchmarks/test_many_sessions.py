"""The comparison of many sessions: it runs, and sessions of a pool take little memory."""

from __future__ import annotations

import json

import pytest

from benchmarks import many_sessions


def test_digits(capsys, tmp_path):
    pytest.importorskip("onnxruntime")
    file = tmp_path / "rows.json"
    given = ["digits", "--sessions", "2", "--seconds", "0.05", "--rounds", "1", "--json", str(file)]
    assert many_sessions.main(given) == 0
    assert "| digits |" in capsys.readouterr().out
    (row,) = json.loads(file.read_text())
    assert set(row["engines"]) == set(many_sessions.ENGINES)
    assert all(e["rate"] > 0 for e in row["engines"].values())


def test_report():
    engines = {
        e: {"memory": 1e6 * (i + 1), "rate": 10} for i, e in enumerate(many_sessions.ENGINES)
    }
    words = many_sessions.report([{"model": "m", "engines": engines}], 8)
    assert "| m | 1.0 | 2.0 | 3.0 | 4.0 | 0.33 | 0.67 |" in words
    assert "at most 1/3 of onnxruntime's memory on 1 of 1 models" in words
