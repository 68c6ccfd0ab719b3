"""TensorFlow ops of quantisation, audio and recurrent cells."""

from __future__ import annotations

import numpy as np
from tests.frontends.tf_build import Bytes, Kind
from tests.frontends.tf_case import F32, Case, Const, case, normal

FAKE = np.linspace(-3, 5, 40, dtype=np.float32)


def fake_quant(
    x: np.ndarray, low: float, high: float, bits: int = 8, narrow: bool = False
) -> np.ndarray:
    """As TensorFlow documents it."""
    first, last = int(narrow), (1 << bits) - 1
    scale = np.float32(high - low) / np.float32(last - first)
    zero = min(max(round(first - low / float(scale)), first), last)
    lo, hi = (first - zero) * scale, (last - zero) * scale
    return np.round((np.clip(x, lo, hi) - lo) / scale) * scale + lo


def lstm_cell(
    x: np.ndarray, c: np.ndarray, h: np.ndarray, w: np.ndarray, b: np.ndarray, forget: float
) -> list[np.ndarray]:
    """Input gate, state, forget gate, output gate, candidate, its tanh, output; clipped at 3."""
    i, new, f, o = np.split(np.concatenate([x, h], 1) @ w + b, 4, 1)
    i, f, o, new = (*(1 / (1 + np.exp(-v)) for v in (i, f + forget, o)), np.tanh(new))
    c = (new * i + c * f).clip(-3, 3)
    return [i, c, f, o, new, np.tanh(c), np.tanh(c) * o]


CASES: dict[str, Case] = {
    "fake quant": case(
        "FakeQuantWithMinMaxArgs",
        FAKE,
        T=None,
        min=-1.03,
        max=2.0,
        want=lambda x: fake_quant(x, -1.03, 2.0),
    ),
    "fake quant positive": case(
        "FakeQuantWithMinMaxArgs",
        FAKE,
        T=None,
        min=0.5,
        max=2.0,
        want=lambda x: fake_quant(x, 0.5, 2.0),
    ),
    "fake quant vars": case(
        "FakeQuantWithMinMaxVars",
        FAKE,
        Const(np.float32(-2)),
        Const(np.float32(3.1)),
        T=None,
        num_bits=5,
        narrow_range=True,
        want=lambda x, a, b: fake_quant(x, -2, 3.1, 5, True),
    ),
    "fake quant channels": case(
        "FakeQuantWithMinMaxVarsPerChannel",
        FAKE.reshape(20, 2),
        Const(np.float32([-1, -2])),
        Const(np.float32([1, 2])),
        T=None,
        narrow_range=True,
        want=lambda x, a, b: np.stack(
            [fake_quant(x[:, i], a[i], b[i], 8, True) for i in range(2)], 1
        ),
    ),
    "grid": case(
        "QuantizeAndDequantizeV2",
        FAKE,
        Const(np.float32(-2)),
        Const(np.float32(1.5)),
        range_given=True,
        want=lambda x, a, b: np.clip(np.rint(x * 64), -128, 127) / 64,
    ),
    "narrow grid": case(
        "QuantizeAndDequantizeV2",
        FAKE,
        Const(np.float32(-2)),
        Const(np.float32(3)),
        range_given=True,
        narrow_range=True,
        want=lambda x, a, b: np.clip(np.rint(x * 127 / 3), -127, 127) * 3 / 127,
    ),
    "positive grid": case(
        "QuantizeAndDequantizeV2",
        FAKE,
        Const(np.float32(0)),
        Const(np.float32(2.55)),
        range_given=True,
        signed_input=False,
        want=lambda x, a, b: np.clip(np.rint(x * 100), 0, 255) / 100,
    ),
    "spectrogram": case(
        "AudioSpectrogram",
        normal(400, 2),
        T=None,
        window_size=50,
        stride=40,
        magnitude_squared=True,
        tolerance=2e-3,
        want=lambda x: np.stack(
            [
                np.abs(np.fft.rfft(x[i * 40 : i * 40 + 50].T * np.hanning(51)[:-1], 64)) ** 2
                for i in range(9)
            ],
            1,
        ),
    ),
    "mfcc": case(
        "Mfcc",
        np.abs(normal(1, 5, 129)),
        Const(np.int32(16000)),
        T=None,
        dct_coefficient_count=10,
        upper_frequency_limit=7000.0,
        tolerance=1e-3,
    ),
    "stored bytes": case(
        "Dequantize",
        Const(Bytes([3, 0, 255, 128])),
        Const(np.float32(-1.01)),
        Const(np.float32(2)),
        T=Kind("quint8"),
        mode="MIN_FIRST",
        want=lambda x, a, b: (x - 86.0) * 3.01 / 255,
    ),
    "lstm": case(
        "BlockLSTM",
        Const(np.int64(5)),
        normal(5, 2, 3),
        Const(normal(2, 4, seed=1)),
        Const(normal(2, 4, seed=2)),
        Const(normal(7, 16, seed=3)),
        *(Const(normal(4, seed=s)) for s in (4, 5, 6)),
        Const(normal(16, seed=7)),
        T=F32,
        use_peephole=True,
        cell_clip=0.9,
        forget_bias=0.5,
        outputs=7,
    ),
    "lstm 2": case(
        "BlockLSTMV2",
        Const(np.int64(5)),
        normal(5, 2, 3),
        Const(normal(2, 4, seed=1)),
        Const(normal(2, 4, seed=2)),
        Const(normal(7, 16, seed=3)),
        *(Const(normal(4, seed=s)) for s in (4, 5, 6)),
        Const(normal(16, seed=7)),
        T=F32,
        cell_clip=-1.0,
        outputs=7,
    ),
    "lstm cell": case(
        "LSTMBlockCell",
        normal(2, 3),
        normal(2, 4, seed=1),
        normal(2, 4, seed=2),
        Const(normal(7, 16, seed=3)),
        *(Const(normal(4, seed=s)) for s in (4, 5, 6)),
        Const(normal(16, seed=7)),
        outputs=7,
        forget_bias=0.5,
        want=lambda x, c, h, w, i, f, o, b: lstm_cell(x, c, h, w, b, 0.5),
    ),
    "gru cell": case(
        "GRUBlockCell",
        normal(2, 3),
        normal(2, 4, seed=1),
        Const(normal(7, 8, seed=2)),
        Const(normal(7, 4, seed=3)),
        Const(normal(8, seed=4)),
        Const(normal(4, seed=5)),
        outputs=4,
    ),
}
