"""The scheme: what it refuses, and which layers a user's words mean."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from intaglio.errors import BadInput
from intaglio.quant.scheme import Override, TensorScheme


def test_one_zero_point_serves_every_scale():
    assert TensorScheme("i8", (0.5, 0.25), (0,), axis=0).zero == (0, 0)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"dtype": "i9"}, "type is 'i9'"),
        ({"dtype": "f32", "scale": (1.0,)}, "float type"),
        ({"dtype": "i8"}, "scale is missing"),
        ({"dtype": "i8", "scale": (1.0, 2.0), "zero": (0, 0)}, "without an axis"),
        (
            {"dtype": "i8", "scale": (1.0, 2.0), "zero": (0, 0, 0), "axis": 0},
            "2 scales and 3 zero points",
        ),
        ({"dtype": "i8", "scale": (0.0,), "zero": (0,)}, "scale is 0.0"),
        ({"dtype": "i8", "scale": (float("nan"),), "zero": (0,)}, "scale is nan"),
        ({"dtype": "u8", "scale": (1.0,), "zero": (-1,)}, "u8 holds 0 to 255"),
    ],
)
def test_refuses_in_words(wrong: dict[str, object], words: str):
    with pytest.raises(BadInput, match=words):
        TensorScheme(**{**asdict(TensorScheme("f32")), **wrong})  # type: ignore[arg-type]


def test_layers_are_named_by_tensor_pattern_or_op():
    assert Override("f32", tensor="b").matches("split", ["a", "b"])
    assert not Override("f32", tensor="a*").matches("split", ["a*b", "b"])
    assert Override("f32", pattern="/head/*").matches("conv", ["/head/cls/Conv_output_0"])
    assert not Override("f32", pattern="/head/*").matches("conv", ["/HEAD/cls"])
    assert Override("f32", op="conv").matches("conv", ["x"])
    assert not Override("f32", op="conv").matches("conv_transpose", ["conv"])
