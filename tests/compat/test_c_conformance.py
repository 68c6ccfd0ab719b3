"""docs/compat-c.md is what the headers and the C programs say."""

from __future__ import annotations

from pathlib import Path

import pytest

from intaglio.compat import c_conformance as page

ROOT = Path(__file__).parents[2]
HEADERS, TESTS = ROOT / page.HEADERS, ROOT / page.TESTS


def test_the_page_is_up_to_date():
    text = (ROOT / "docs/compat-c.md").read_text()
    wanted = page.page(HEADERS, TESTS)
    assert text == wanted, "run `python -m intaglio.compat.c_conformance docs/compat-c.md`"
    assert "untested" not in text


def test_everything_documented_is_listed():
    found = page.functions(HEADERS)
    assert {name: len(of) for name, of in found.items()} == {
        "rknn_api.h": 23,
        "rknn_matmul_api.h": 10,
        "rknn_custom_op.h": 2,
    }
    assert len(page.queries(HEADERS)) == 20
    names = {n for of in found.values() for n in of}
    assert set(page.FUNCTIONS) <= names
    assert set(page.QUERIES) <= set(page.queries(HEADERS))
    text = "".join(p.read_text() for p in (HEADERS / "nncase").rglob("*.h"))
    assert all(name.rpartition("::")[2] + "(" in text for name in page.NNCASE)


def test_a_function_without_a_program_is_seen(tmp_path: Path):
    (tmp_path / "a.c").write_text("int main(void) { return rknn_run(0, 0); }\n")
    text = page.page(HEADERS, tmp_path)
    assert "| `rknn_run` | complete | a.c |" in text
    assert "| `rknn_wait` | untested |  |" in text


def test_usage(capsys: pytest.CaptureFixture[str]):
    assert page.main([]) == 2
    assert "usage" in capsys.readouterr().err
