"""The fuzzer of model files: its mutations and its statistics."""

from __future__ import annotations

import io
import random
import zipfile

import pytest
from tests import fuzz_frontends


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
