"""The fuzzer of model files: its mutations and its statistics."""

from __future__ import annotations

import io
import random
import zipfile
from pathlib import Path

import pytest
from tests import fuzz_frontends


@pytest.mark.parametrize("kind", fuzz_frontends.FILES)
def test_every_sample_loads_unchanged(kind: str, tmp_path: Path):
    every = fuzz_frontends.samples(kind, tmp_path)
    if not every:
        pytest.skip(f"what builds {kind} files is not installed")
    fuzz_frontends.require_good(every)


def test_a_sample_that_does_not_load_fails(tmp_path: Path):
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with pytest.raises(RuntimeError, match=r"sample bad\.onnx does not load unchanged: "):
        fuzz_frontends.require_good([(tmp_path / "bad.onnx", [], {})])
    with pytest.raises(RuntimeError, match="no sample"):
        fuzz_frontends.require_good([])


@pytest.mark.parametrize("kind", ["darknet", "tensorflow"])
def test_a_few_files_go_well(kind: str):
    line, fine = fuzz_frontends.run(kind, 12, 3)
    assert fine, line
    assert line.split()[2] == "12"


@pytest.mark.slow
@pytest.mark.parametrize("kind", fuzz_frontends.FILES)
def test_every_format(kind: str):
    line, fine = fuzz_frontends.run(kind, 300, 1)
    assert fine, line


def test_records_of_archives_are_changed_with_right_checksums():
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as z:
        z.writestr("a/code.py", "x = 1\n" * 20)
    found = set()
    for seed in range(40):
        bad = fuzz_frontends.mutated(made.getvalue(), random.Random(seed))
        try:
            with zipfile.ZipFile(io.BytesIO(bad)) as z:
                found.add(z.read("a/code.py"))
        except (zipfile.BadZipFile, KeyError, NotImplementedError, EOFError, OSError):
            continue
    assert len(found) > 10
