"""The words of layers: packing, limits, and words that Canaan's own compiler wrote."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intaglio.errors import BadFile, BadInput
from intaglio.npu.chips.k210 import layer, ram
from intaglio.npu.chips.k210.arithmetic import Terms
from intaglio.npu.chips.k210.fields import LAYER, Curve, Norm, pack, unpack
from intaglio.targets import chip as chips

# The first two layers of the 20-class YOLO that comes with nncase 0.1, and its widest one.
OF_NNCASE = [
    "0000000000000000 00000000000071f0 000f000f00000002 0001dc9f0003bd3f"
    " 00000000000f0411 0000000000d80001 0000000000000000 00000000900504b0"
    " 0000000000130168 00bd0000000000f0 0000000000000000 0004afff4aff0000",
    "0000000000000008 0000698000000000 000f000f0000000f 0001dc9f0001dc9f"
    " 000000000d0f0401 0000000000480001 0000000000000000 0000000090030168"
    " 0000000000130168 00bf0000f98000ff 0000000000003b6a 0004afff4aff0000",
]


@pytest.mark.parametrize("text", OF_NNCASE)
def test_words_of_nncase_come_from_their_shapes(text):
    words = np.array([int(w, 16) for w in text.split()], np.uint64)
    assert np.array_equal(layer.read(words).words(), words)


def test_fields_do_not_overlap():
    used = [0] * 12
    for field in LAYER.values():
        bits = ((1 << field.bits) - 1) << field.low
        assert not used[field.word] & bits
        used[field.word] |= bits


@given(st.data())
def test_packing_round_trips(data):
    values = {k: data.draw(st.integers(*f.limits), label=k) for k, f in LAYER.items()}
    assert unpack(pack(values)) == values


def test_values_beyond_a_field_are_refused():
    with pytest.raises(BadInput, match="field 'src' is 32768; it has 0 to 32767"):
        pack({"src": 32768})


@given(st.integers(0, 2**32 - 1))
def test_batch_norm_and_curves_round_trip(seed):
    rng = np.random.default_rng(seed)
    norm = Norm(
        rng.integers(-(2**23), 2**23, 9), rng.integers(0, 16, 9), rng.integers(-(2**31), 2**31, 9)
    )
    again = Norm.unpack(norm.pack())
    assert all(np.array_equal(getattr(norm, k), getattr(again, k)) for k in ("mul", "shift", "add"))
    curve = Curve(
        rng.integers(-(2**35), 2**35, 16),
        rng.integers(-(2**15), 2**15, 16),
        rng.integers(0, 44, 16),
        rng.integers(0, 256, 16),
    )
    found = Curve.unpack(curve.pack())
    names = ("start", "mul", "shift", "bias")
    assert all(np.array_equal(getattr(curve, k), getattr(found, k)) for k in names)


def test_weights_are_loaded_by_thirty_kilobytes():
    assert layer.weight_loads(512, 1024, 1, False) == (60, 30720, 18)
    assert layer.weight_loads(1024, 512, 1, False) == (30, 30720, 18)
    assert layer.weight_loads(64, 64, 3, True) == (64, 576, 1)
    assert layer.max_outputs(1024, 3) == 64 * 3  # a count of loads has six bits


def test_limits_have_words():
    assert layer.why_not((1024, 4, 4)) is None
    assert "1280 channels; the KPU does at most 1024" in layer.why_not((1280, 7, 7))
    assert "at least 4x4" in layer.why_not((8, 2, 7))
    assert "at most 256x512" in layer.why_not((3, 300, 300))


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 130), st.integers(0, 99))
def test_maps_round_trip_through_the_ram(channels, height, width, line):
    rng = np.random.default_rng(width)
    values = rng.integers(0, 256, (channels, height, width)).astype(np.uint8)
    memory = np.zeros((line + ram.lines(channels, height, width)) * ram.LINE, np.uint8)
    ram.upload(memory, line, values)
    assert np.array_equal(ram.download(memory, line, values.shape), values)
    assert not memory[: line * ram.LINE].any()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kernel": 2}, "kernel type 2"),
        ({"pool": 10}, "pooling mode 10"),
        ({"out_width": 9}, "its pooling makes 4x8"),
        ({"src": 32767}, "beyond the KPU's RAM"),
        ({"bypass_conv": 1}, "bypasses its convolution"),
        ({"depthwise": 1, "out_channels": 5}, "makes 5 channels of 4"),
    ],
)
def test_impossible_layers_are_refused(change, words):
    good = layer.Layer((4, 4, 8), 4, 3, False, 0, 0, Terms())
    with pytest.raises(BadFile, match=words):
        layer.read(pack({**unpack(good.words()), **change}))


def test_limits_are_those_of_the_chip_file():
    chip = chips.load("k210")
    limits = chip.units["conv"].limits
    assert chip.sram == ram.BYTES
    assert limits["channels"] == layer.MAX_CHANNELS
    assert (limits["height"], limits["width"]) == (layer.MAX_HEIGHT, layer.MAX_WIDTH)
    assert limits["kernel"] == tuple(layer.KERNELS.values())
