"""RKNN.config: defaults, values that are refused in one line, arguments without effect."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest

from intaglio.compat.rknn.api import RKNN
from intaglio.compat.rknn.config import EFFECTS, Config
from intaglio.compat.rknn.platforms import PLATFORMS, cores_of
from intaglio.errors import BadInput


def test_signature_and_dataclass_agree():
    signature = inspect.signature(RKNN.config).parameters
    own = {f.name: f.default for f in fields(Config)}
    assert {n: p.default for n, p in signature.items() if n not in ("self", "kwargs")} == own
    assert list(EFFECTS) == list(own)


@pytest.mark.parametrize("name", [*PLATFORMS, "RK3588", "rk3588s"])
def test_platforms(name: str):
    assert RKNN().config(target_platform=name) == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "target_platform is not given; it is one of rk3566"),
        ({"target_platform": "rk9999"}, "target_platform is 'rk9999'; known are"),
        ({"target_platform": "rk3589"}, "did you mean 'rk3588'?"),
        ({"target_platform": "rk1808"}, "a chip of RKNN-Toolkit 1"),
        ({"quantized_dtype": "int8"}, "quantized_dtype is 'int8'; it is one of w8a8"),
        ({"quantized_method": "group32"}, "groups are for quantized_dtype='w4a16'"),
        ({"quantized_dtype": "w4a16", "quantized_method": "group48"}, "groups are of 32, 64"),
        ({"quantized_algorithm": "mse"}, "did you mean 'mmse'?"),
        ({"quantized_method": "tensor"}, "quantized_method is 'tensor'"),
        ({"float_dtype": "float64"}, "float_dtype is 'float64'; it is one of float16"),
        ({"std_values": [[1, 0, 1]]}, "std_values has a 0"),
        ({"mean_values": 3}, "mean_values is 3; give a list for each input"),
        ({"mean_values": [["a"]]}, "mean_values has ['a']"),
        ({"inputs_yuv_fmt": "nv12"}, "give a list with 'nv12', 'nv21' or None"),
        ({"inputs_yuv_fmt": ["NV12"]}, "inputs_yuv_fmt is ['NV12']"),
        ({"op_target": {"Softmax": "dsp"}}, "targets are cpu, npu, gpu and auto"),
        ({"op_target": ["Softmax"]}, "op_target is ['Softmax']; give a dict"),
        ({"custom_string": 3}, "custom_string is 3; give a text"),
        ({"dynamic_input": [[1, 3, 8, 8]]}, "give sets of shapes"),
        ({"dynamic_input": [[[1, 3, 8, 8]], [[1], [2]]]}, "as many in every set"),
        ({"dynamic_input": [[[1, 0]]]}, "extents are at least 1"),
        ({"mean": [[0]]}, "unknown argument 'mean'; did you mean 'mean_values'?"),
        ({"mean_value": [[0]]}, "unknown argument 'mean_value'; did you mean 'mean_values'?"),
    ],
)
def test_mistakes_are_one_line(given: dict, words: str, capsys: pytest.CaptureFixture[str]):
    rknn = RKNN()
    given = (
        given if not given or "target_platform" in given else {**given, "target_platform": "rk3588"}
    )
    assert rknn.config(**given) == -1
    said = capsys.readouterr().err
    assert said.startswith("E config: ")
    assert words in said
    assert said.count("\n") == 1
    assert rknn.load_onnx("x.onnx") == -1
    assert "there is no config; call config(" in capsys.readouterr().err


def test_arguments_without_effect_are_warnings(capsys: pytest.CaptureFixture[str]):
    given = {"compress_weight": True, "sparse_infer": True, "sram_prefer": 1}
    assert RKNN().config(target_platform="rk3588", optimization_level=7, **given) == 0
    said = capsys.readouterr().err
    for words in (
        "compress_weight is ignored",
        "sparse_infer is ignored",
        "sram_prefer is ignored",
    ):
        assert f"W config: {words}" in said
    assert "optimization_level is 7; levels are 0 to 3; 3 is used" in said


def test_a_flat_list_is_for_the_only_input():
    assert Config(target_platform="rk3588", mean_values=[1, 2, 3]).mean_values == [[1.0, 2.0, 3.0]]


def test_the_largest_set_of_shapes():
    config = Config(
        target_platform="rk3588", dynamic_input=[[[1, 112], [1, 80]], [[1, 224], [1, 40]]]
    )
    assert config.largest == [[1, 224], [1, 40]]


def test_core_masks():
    assert cores_of(RKNN.NPU_CORE_AUTO, "rk3588") == 1
    assert cores_of(RKNN.NPU_CORE_0_1_2, "rk3588") == 3
    assert cores_of(RKNN.NPU_CORE_ALL, "rk3576") == 2
    with pytest.raises(BadInput, match="rk3566 has 1 NPU core; use"):
        cores_of(RKNN.NPU_CORE_0_1, "rk3566")
    with pytest.raises(BadInput, match="core_mask is 'all'"):
        cores_of("all", "rk3588")
