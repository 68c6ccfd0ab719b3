"""Scales and zero points from ranges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.quant.placement.test_place import conv, image, placed

from intaglio import ops
from intaglio.quant.placement.place import activations
from intaglio.quant.ranges.affine import affine
from intaglio.quant.ranges.assign import assign
from intaglio.quant.weights.integers import from_integers, to_integers, weight_scheme


@pytest.mark.parametrize(
    ("lo", "hi", "dtype", "symmetric", "scale", "zero"),
    [
        (0.0, 2.55, "u8", False, 0.01, 0),
        (-1.0, 1.0, "i8", True, 1 / 127, 0),
        (-1.28, 1.27, "i8", False, 0.01, 0),
        (1.0, 2.55, "u8", False, 0.01, 0),  # zero is always inside
        (-2.55, -1.0, "i8", False, 0.01, 127),
        (0.0, 0.0, "i8", False, 1.0, 0),
        (-1.0, 1.0, "u8", True, 1 / 127, 128),
        (-3.0, 3.0, "i16", True, 3 / 32767, 0),
    ],
)
def test_affine(lo, hi, dtype, symmetric, scale, zero):
    made = affine(lo, hi, dtype, symmetric)
    assert made.scale[0] == pytest.approx(scale, rel=1e-6)
    assert made.zero == (zero,)


def test_a_tiny_range_does_not_underflow():
    assert affine(0.0, 1e-45).scale == (1.0,)


def test_a_max_pool_keeps_the_scale_of_its_input():
    x = image()
    pooled = ops.max_pool(conv(x), kernel=(2, 2), stride=(2, 2), pad=(0,) * 4, dilation=(1, 1))
    made = placed(x, conv(pooled[0] if isinstance(pooled, list) else pooled))
    schemes = assign(made, {v: (-float(i), 1.0 + i) for i, v in enumerate(made.tensors)})
    before, after = (schemes[v.name] for v in made.tensors if v.producer)
    assert before == after


def test_parts_of_a_concat_share_its_scale_unless_other_readers_lose_precision():
    x = image()
    near, far = ops.relu(conv(x, seed=1)), ops.relu(conv(x, seed=2))
    made = placed(x, conv(ops.concat(near, far, axis=1)), conv(far))
    whole = next(v for v in made.tensors if v.producer and v.producer.op == "concat")
    ranges = dict.fromkeys(made.tensors, (0.0, 6.0))
    ranges[activations(whole.producer)[1]] = (0.0, 1.0)
    schemes = assign(made, ranges)
    assert schemes[near.name] == schemes[whole.name] != schemes[far.name]


def test_weights_have_a_scale_for_each_channel_and_no_zero():
    w = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    w[2] = 0
    scheme = weight_scheme(w, 0)
    stored = to_integers(w, scheme)
    assert scheme.axis == 0
    assert len(scheme.scale) == 4
    assert scheme.scale[2] == 1.0
    assert np.abs(stored.reshape(4, -1)).max(1).tolist() == [127, 127, 0, 127]
    error = np.abs(stored * np.float32(scheme.scale).reshape(4, 1, 1, 1) - w)
    assert (error.reshape(4, -1).max(1) <= np.array(scheme.scale) * 0.501).all()


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("dtype", ["i4", "u4"])
def test_a_scale_per_tensor_clips_for_the_least_error(dtype, zeros):
    w = np.random.default_rng(0).standard_normal((8, 4, 3, 3)).astype(np.float32)
    w[0, 0, 0, 0] = 12.0
    scheme = weight_scheme(w, None, dtype, zeros)
    whole = weight_scheme(w.reshape(1, -1), 0, dtype, zeros)

    def lost(t):
        return np.square(from_integers(to_integers(w.reshape(1, -1), t), t) - w.ravel()).sum()

    assert scheme.axis is None
    assert len(scheme.scale) == 1
    assert scheme.hi < whole.hi == 12.0
    assert lost(replace(scheme, axis=0)) < lost(whole)
    assert weight_scheme(w, None, "i16").hi == 12.0
