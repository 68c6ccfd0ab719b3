"""Weight rounding: lower output error than to nearest, and always within the type."""

import numpy as np
import pytest

from intaglio.quant.weights import rounding

RNG = np.random.default_rng(3)


def layer(groups, outputs, inputs, rows=2000):
    """Weights, scales of a 4-bit format, and the Gram matrix of correlated inputs."""
    mix = RNG.standard_normal((groups, inputs, inputs))
    x = np.maximum(RNG.standard_normal((groups, rows, inputs)) @ mix, 0)
    w = RNG.standard_normal((groups, outputs, inputs))
    return w, np.abs(w).max(-1, keepdims=True) / 7, np.swapaxes(x, -1, -2) @ x / rows


@pytest.mark.parametrize(("groups", "outputs", "inputs"), [(1, 16, 200), (8, 1, 9), (2, 3, 150)])
def test_rounding_by_data_lowers_the_output_error(groups, outputs, inputs):
    w, scale, gram = layer(groups, outputs, inputs)
    q = rounding.round_weights(w, scale, -7, 7, gram)
    plain = rounding.round_weights(w, scale, -7, 7)
    assert np.array_equal(q, np.rint(q))
    assert np.abs(q).max() <= 7
    mine, theirs = (rounding.loss(a, w, scale, gram) for a in (q, plain))
    assert (mine <= theirs).all()
    assert mine.sum() < 0.8 * theirs.sum()


def test_inputs_that_are_always_zero():
    w, scale, gram = layer(1, 4, 20)
    gram[:, 5], gram[:, :, 5] = 0, 0
    q = rounding.round_weights(w, scale, -7, 7, gram)
    assert np.isfinite(q).all()
    nothing = rounding.round_weights(w, scale, -7, 7, np.zeros_like(gram))
    assert np.array_equal(nothing, rounding.nearest(w, scale, -7, 7))


def moved_one_by_one(w, scale, low, high):
    """The definition of `squant`: move the weight with the least added error, until sums fit."""
    exact = w.astype(np.float64) / scale[:, None, None]
    q = np.clip(np.rint(exact), low, high)

    def cancel(q, exact):
        total = (q - exact).sum()
        sign = np.sign(total)
        for _ in range(int(np.rint(abs(total))) if abs(total) > 0.5 else 0):
            gain = np.where((q - sign < low) | (q - sign > high), 0, (q - exact) * sign)
            if gain.max() <= 0:
                break
            q[np.unravel_index(gain.argmax(), q.shape)] -= sign

    for o in range(len(q)):
        for i in range(q.shape[1]):
            cancel(q[o, i], exact[o, i])
        cancel(q[o], exact[o])
    return q


@pytest.mark.parametrize("shape", [(6, 10, 9), (3, 40, 1), (4, 1, 25), (2, 300, 3), (1, 1, 1)])
@pytest.mark.parametrize("clipped", [1.0, 0.3])
def test_squant_moves_the_weights_with_the_least_added_error(shape, clipped):
    w = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
    scale = (np.abs(w).max((1, 2)) / 7 * clipped).astype(np.float32)
    q = rounding.squant(w, scale, -7, 7)
    assert np.array_equal(q, moved_one_by_one(w, scale, -7, 7))
    shifted = rounding.squant(w, scale, 1, 15, np.full(len(w), 8.0))
    assert np.abs((shifted - 8) - q).max() <= 1


def test_squant_keeps_the_sums_of_kernels_and_outputs():
    w = RNG.standard_normal((6, 10, 9)).astype(np.float32)
    scale = np.abs(w).max((1, 2), keepdims=True) / 7
    q = rounding.squant(w, scale[:, 0, 0], -7, 7)
    off = q - w.astype(np.float64) / scale
    assert np.abs(off).max() < 1.5
    assert np.abs(off.sum((1, 2))).max() <= 0.5 + 1e-9
    plain = rounding.nearest(w, scale, -7, 7) - w / scale
    assert np.abs(off.sum(2)).mean() < 0.6 * np.abs(plain.sum(2)).mean()
    ones = np.ones((90, 90))
    x = 0.5 * ones + np.kron(np.eye(10), np.ones((9, 9))) + np.eye(90)
    error = [
        rounding.loss(a.reshape(6, 90), w.reshape(6, 90), scale[..., 0], x).sum()
        for a in (q, rounding.nearest(w, scale, -7, 7))
    ]
    assert error[0] < 0.5 * error[1]


def test_clipping_pays_at_four_bits():
    w = RNG.standard_t(4, (5, 500))
    scale = rounding.clipped_scale(w, 7)
    whole = np.abs(w).max(-1, keepdims=True) / 7
    off = [((rounding.nearest(w, s, -7, 7) * s - w) ** 2).sum(-1) for s in (scale, whole)]
    assert (off[0] <= off[1]).all()
    assert off[0].sum() < 0.8 * off[1].sum()
    assert np.array_equal(rounding.clipped_scale(np.zeros((2, 4)), 7), np.ones((2, 1)))


def test_fitting_scales_and_integers_in_turn_errs_less():
    x = RNG.standard_normal((400, 64)) @ RNG.standard_normal((64, 64))
    gram, w = x.T @ x / 400, RNG.standard_t(5, (24, 64))
    scale = np.abs(w).reshape(24, 4, 16).max(-1) / 7
    zero = np.zeros((24, 4))

    def error(q, scale):
        return (((q * np.repeat(scale, 16, 1) - w) @ x.T) ** 2).mean()

    plain = rounding.nearest(w, np.repeat(scale, 16, 1), -8, 7)
    carried = rounding.round_weights(w, np.repeat(scale, 16, 1), -8, 7, gram)
    fitted, found = rounding.fit_groups(w, scale, zero, -8, 7, gram, 16)
    assert error(fitted, found) < error(carried, scale) < 0.5 * error(plain, scale)
    assert fitted.min() >= -8
    assert fitted.max() <= 7
    better = rounding.refit_scales(plain, w, scale, gram, 16)
    assert error(plain, better) < error(plain, scale)


def test_an_indefinite_gram_matrix_does_not_stop_rounding():
    """Cancellation in sums over few samples can leave a matrix that is not positive definite."""
    rng = np.random.default_rng(3)
    w = rng.standard_normal((4, 8))
    wrong = np.eye(8) - 0.3 * np.ones((8, 8))  # one eigenvalue is -1.4
    for gram in (wrong, -np.eye(8)):
        q = rounding.round_weights(w, np.full((4, 8), 0.1), -127, 127, gram)
        assert np.abs(q * 0.1 - w).max() < 1
        assert (q == np.rint(q)).all()
