"""The HTML report of a quantisation."""

from __future__ import annotations

from intaglio.analysis.page import page


def test_names_in_the_page_are_text():
    facts = {
        "model": "<script>",
        "layers": {"int8": 1},
        "parameter_bytes": [4, 1],
        "floats": {"<svg onload=x>": "a < b"},
        "accuracy": {
            "samples": 1,
            "warnings": ["'<b>' is always 0"],
            "outputs": [{"output": "<svg>", "cosine": 1.0, "error": 0.0}],
            "layers": [
                {
                    "name": "<svg>",
                    "op": "conv",
                    "cosine": 0.5,
                    "error": None,
                    "single_cosine": 0.5,
                    "single_error": None,
                }
            ],
        },
    }
    shown = page(facts).rpartition("<script>")[0]  # before the page's own
    for raw in ("<script>", "<svg>", "<b>' is", "<svg onload"):
        assert raw not in shown
    assert "&lt;svg&gt;" in shown
