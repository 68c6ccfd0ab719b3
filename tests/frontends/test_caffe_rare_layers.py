"""Caffe recurrent layers, DetectionOutput of SSD and layers of forks, against numpy and OpenCV."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.frontends.test_caffe import INPUT, cv2, layer, model, normal

import intaglio
from intaglio.errors import BadFile, IntaglioError, Unsupported

NOTHING = {"none": [np.float32([0.0])]}


def inputs(**shapes: tuple[int, ...]) -> str:
    rows = (
        f'input: "{n}" input_shape {{ {" ".join(f"dim: {d}" for d in shape)} }}\n'
        for n, shape in shapes.items()
    )
    return "".join(rows)


def run(net: Path, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    """Outputs of the compiled model, which must equal those of the interpreter."""
    graph = intaglio.load(net)
    meant = intaglio.interpret(graph, feeds)
    with intaglio.open(intaglio.compile(graph)) as session:
        got = {n: np.array(a) for n, a in session.run(feeds).items()}
    for name, want in meant.items():
        np.testing.assert_allclose(got[name], want, rtol=1e-4, atol=1e-5)
    return got


# ---- layers of forks -----------------------------------------------------------------------------
X = normal(1, 6, 9, 11, seed=1)


def stretched(x: np.ndarray, height: int, width: int) -> np.ndarray:
    """Bilinear with aligned corners."""
    for axis, size in ((2, height), (3, width)):
        at = np.linspace(0, x.shape[axis] - 1, size)
        low = np.minimum(at.astype(int), x.shape[axis] - 2)
        share = (at - low).reshape([-1 if k == axis else 1 for k in range(4)])
        x = x.take(low, axis) * (1 - share) + x.take(low + 1, axis) * share
    return x


def pooled(x: np.ndarray, size: int) -> np.ndarray:
    pad = size // 2
    wide = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    return np.lib.stride_tricks.sliding_window_view(wide, (size, size), (2, 3)).mean((4, 5))


CASES = {
    "relu6": (layer("ReLU6"), [], X.clip(0, 6)),
    "abs": (layer("AbsVal"), [], np.abs(X)),
    "bnll": (layer("BNLL"), [], np.log1p(np.exp(X))),
    "exp": (layer("Exp", "exp_param { base: 2 scale: 0.5 shift: 1 }"), [], 2 ** (1 + X / 2)),
    "log": (layer("Log", "log_param { base: 10 scale: 0.1 shift: 5 }"), [], np.log10(X / 10 + 5)),
    "clip": (layer("Clip", "clip_param { min: -0.5 max: 0.7 }"), [], X.clip(-0.5, 0.7)),
    "threshold": (layer("Threshold", "threshold_param { threshold: 0.3 }"), [], X > 0.3),
    "tile": (layer("Tile", "tile_param { axis: 2 tiles: 2 }"), [], np.concatenate([X, X], 2)),
    "bias": (layer("Bias"), [normal(6)], X + normal(6).reshape(1, 6, 1, 1)),
    "swish": (layer("Swish"), [], X / (1 + np.exp(-X))),
    "sum": (layer("Reduction", "reduction_param { axis: 1 coeff: 2 }"), [], 2 * X.sum((1, 2, 3))),
    "mean": (layer("Reduction", "reduction_param { operation: MEAN axis: 2 }"), [], X.mean((2, 3))),
    "squares": (
        layer("Reduction", "reduction_param { operation: SUMSQ axis: 2 }"),
        [],
        (X * X).sum((2, 3)),
    ),
    "upsample": (layer("Upsample", "upsample_param { scale: 2 }"), [], X.repeat(2, 2).repeat(2, 3)),
    "interp": (layer("Interp", "interp_param { height: 17 width: 5 }"), [], stretched(X, 17, 5)),
    "zoomed": (layer("Interp", "interp_param { zoom_factor: 2 }"), [], stretched(X, 17, 21)),
    "cut": (
        layer("Interp", "interp_param { height: 8 width: 8 pad_beg: -1 pad_end: -2 }"),
        [],
        stretched(X[:, :, 1:-2, 1:-2], 8, 8),
    ),
    "argmax": (layer("ArgMax", "argmax_param { axis: 1 }"), [], X.argmax(1)[:, None]),
    "best": (
        layer("ArgMax", "argmax_param { out_max_val: true top_k: 2 }"),
        [],
        np.stack([np.argsort(-X.ravel())[:2], np.sort(-X.ravel())[:2] * -1])[None],
    ),
    "mvn": (layer("MVN"), [], (X - X.mean((2, 3), keepdims=True)) / X.std((2, 3), keepdims=True)),
    "within": (
        layer("LRN", "lrn_param { local_size: 3 alpha: 0.5 norm_region: WITHIN_CHANNEL }"),
        [],
        X * (1 + 0.5 * pooled(X * X, 3)) ** -0.75,
    ),
    "folded norm": (
        layer("BN"),
        [normal(6), normal(6, seed=4)],
        X * normal(6).reshape(6, 1, 1) + normal(6, seed=4).reshape(6, 1, 1),
    ),
    "four blobs": (
        layer("BN", "bn_param { eps: 0.001 }"),
        [normal(6), normal(6, seed=4), normal(6, seed=5), abs(normal(6, seed=6))],
        (X - normal(6, seed=5).reshape(6, 1, 1))
        / np.sqrt(abs(normal(6, seed=6)).reshape(6, 1, 1) + 1e-3)
        * normal(6).reshape(6, 1, 1)
        + normal(6, seed=4).reshape(6, 1, 1),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_layers(tmp_path: Path, name: str):
    text, blobs, want = CASES[name]
    got = run(model(tmp_path, INPUT + text, {"l": blobs or NOTHING["none"]}), data=X)["y"]
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_axpy_crop_and_embed(tmp_path: Path):
    shapes = {"a": (2, 6), "x": (2, 6, 5, 5), "y": (2, 6, 5, 5), "w": (3, 4)}
    text = inputs(**shapes) + layer("Axpy", "", "a x y", "sum", "axpy")
    text += layer("Crop", "crop_param { axis: 2 offset: 1 }", "x small", "cut", "crop")
    text += layer("Pooling", "pooling_param { kernel_size: 2 stride: 2 }", "y", "small", "p")
    rows = text.splitlines(keepends=True)
    text = "".join([*rows[:-2], rows[-1], rows[-2]])  # the result is read later
    text += layer("Embed", "embed_param { input_dim: 9 num_output: 5 }", "w", "e", "embed")
    net = model(tmp_path, text, {"embed": [normal(9, 5), normal(5)]})
    a, x, y = (normal(*shapes[n], seed=i) for i, n in enumerate("axy"))
    words = np.random.default_rng(0).integers(0, 9, (3, 4)).astype(np.float32)
    got = run(net, a=a, x=x, y=y, w=words)
    np.testing.assert_allclose(got["sum"], a[:, :, None, None] * x + y, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(got["cut"], x[:, :, 1:4, 1:4])
    np.testing.assert_allclose(got["e"], normal(9, 5)[words.astype(int)] + normal(5), atol=1e-6)


def test_regions(tmp_path: Path):
    rois = np.float32([[0, 0, 0, 4, 4], [0, 2, 1, 10, 8]])
    text = inputs(data=X.shape, rois=rois.shape)
    text += layer("ROIPooling", "roi_pooling_param { pooled_h: 2 pooled_w: 3 }", "data rois")
    got = run(model(tmp_path, text, NOTHING), data=X, rois=rois)["y"]
    assert got.shape == (2, 6, 2, 3)
    np.testing.assert_array_equal(got[0, :, 0, 0], X[0, :, :3, :2].max((1, 2)))


# ---- recurrent layers ----------------------------------------------------------------------------
T, N, D, H = 5, 2, 3, 4
WEIGHTS = [normal(4 * H, D, seed=7), normal(4 * H, seed=8), normal(4 * H, H, seed=9)]
PLAIN = [
    normal(H, D, seed=7),
    normal(H, seed=8),
    normal(H, H, seed=9),
    normal(H, H, seed=10),
    normal(H, seed=11),
]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def by_lstm(x: np.ndarray, go_on: np.ndarray, h: np.ndarray, c: np.ndarray) -> list[np.ndarray]:
    w, b, r = WEIGHTS
    out = []
    for row, alive in zip(x, go_on[:, :, None], strict=True):
        i, f, o, g = np.split(row @ w.T + b + (alive * h) @ r.T, 4, 1)
        c = sigmoid(f) * (alive * c) + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        out.append(h)
    return [np.stack(out), h[None], c[None]]


def by_rnn(x: np.ndarray, go_on: np.ndarray, h: np.ndarray) -> list[np.ndarray]:
    w, b, r, w2, b2 = PLAIN
    out = []
    for row, alive in zip(x, go_on[:, :, None], strict=True):
        h = np.tanh(row @ w.T + b + (alive * h) @ r.T)
        out.append(np.tanh(h @ w2.T + b2))
    return [np.stack(out), h[None]]


@pytest.mark.parametrize("kind", ["LSTM", "RNN"])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("exposed", [False, True])
def test_sequences(tmp_path: Path, kind: str, known: bool, exposed: bool):
    x, go_on = normal(T, N, D, seed=2), np.ones((T, N), np.float32)
    go_on[0] = 0
    if not known:
        go_on[3, 1] = 0  # another sequence starts
    names = ["h", "c"][: 2 if kind == "LSTM" else 1]
    states = {
        n: normal(1, N, H, seed=i) if exposed else np.zeros((1, N, H), np.float32)
        for i, n in enumerate(names)
    }
    text = inputs(x=(T, N, D)) + ("" if known else inputs(cont=(T, N)))
    if known:
        one = "continuation_indicator_param { time_step: 5 batch_size: 2 }"
        text += layer("ContinuationIndicator", one, "", "cont", "k")
    text += inputs(**{n: s.shape for n, s in states.items()}) if exposed else ""
    bottoms = " ".join(["x", "cont", *(names if exposed else [])])
    tops = " ".join(["y", *(f"{n}_last" for n in names)]) if exposed else "y"
    flag = "expose_hidden: true" if exposed else ""
    text += layer(kind, f"recurrent_param {{ num_output: {H} {flag} }}", bottoms, tops)
    net = model(tmp_path, text, {"l": WEIGHTS if kind == "LSTM" else PLAIN})
    feeds = {"x": x, **({} if known else {"cont": go_on}), **(states if exposed else {})}
    got = run(net, **feeds)
    by = by_lstm if kind == "LSTM" else by_rnn
    want = by(x, go_on, *(s[0] for s in states.values()))
    for name, array in zip(tops.split(), want, strict=False):
        np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=1e-5)
    ops = {n.op for n in intaglio.load(net).nodes()}
    assert (kind.lower() in ops) == known


# ---- SSD -----------------------------------------------------------------------------------------
def ssd(folder: Path, settings: str, classes: int = 4, shared: bool = True) -> Path:
    """Two feature maps with priors, locations and scores, concatenated as in SSD."""
    text = 'name: "ssd" input: "data" input_dim: 1 input_dim: 3 input_dim: 24 input_dim: 24\n'
    weights: dict[str, list[np.ndarray]] = {}
    source = "data"
    for k, (least, most) in enumerate(((6, 9), (9, 14))):
        text += layer(
            "Convolution",
            "convolution_param { num_output: 8 kernel_size: 3 pad: 1 stride: 2 }",
            source,
            f"m{k}",
            f"m{k}",
        )
        ins = 3 if k == 0 else 8
        weights[f"m{k}"] = [normal(8, ins, 3, 3, seed=k) / 4, normal(8, seed=k) / 4]
        source = f"m{k}"
        text += layer("ReLU", "", source, source, f"r{k}")
        priors = 4
        for what, each in (("loc", 4 * (1 if shared else classes)), ("conf", classes)):
            text += layer(
                "Convolution",
                f"convolution_param {{ num_output: {priors * each} kernel_size: 1 }}",
                source,
                f"{what}{k}",
                f"{what}{k}",
            )
            made = normal(priors * each, 8, 1, 1, seed=5 + k) / 6
            weights[f"{what}{k}"] = [made, normal(priors * each, seed=k) / 6]
            text += layer(
                "Permute",
                "permute_param { order: 0 order: 2 order: 3 order: 1 }",
                f"{what}{k}",
                f"{what}{k}p",
                f"{what}{k}p",
            )
            text += layer(
                "Flatten", "flatten_param { axis: 1 }", f"{what}{k}p", f"{what}{k}f", f"{what}{k}f"
            )
        text += layer(
            "PriorBox",
            f"prior_box_param {{ min_size: {least} max_size: {most} "
            "aspect_ratio: 2 flip: true clip: false variance: 0.1 variance: 0.1 "
            "variance: 0.2 variance: 0.2 }",
            f"{source} data",
            f"box{k}",
            f"box{k}",
        )
    for what, axis in (("loc", 1), ("conf", 1), ("box", 2)):
        ends = "" if what == "box" else "f"
        text += layer(
            "Concat", f"concat_param {{ axis: {axis} }}", f"{what}0{ends} {what}1{ends}", what, what
        )
    text += layer(
        "Reshape",
        f"reshape_param {{ shape {{ dim: 0 dim: -1 dim: {classes} }} }}",
        "conf",
        "rows",
        "rows",
    )
    text += layer("Softmax", "softmax_param { axis: 2 }", "rows", "shares", "shares")
    text += layer("Flatten", "flatten_param { axis: 1 }", "shares", "flat", "flat")
    text += layer(
        "DetectionOutput",
        f"detection_output_param {{ num_classes: {classes} "
        f"share_location: {str(shared).lower()} {settings} }}",
        "loc flat box",
        "found",
        "found",
    )
    return model(folder, text, weights)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(
    "settings",
    [
        "background_label_id: 0 code_type: CENTER_SIZE confidence_threshold: 0.3 keep_top_k: 50 "
        "nms_param { nms_threshold: 0.45 top_k: 100 }",
        "background_label_id: 0 code_type: CENTER_SIZE confidence_threshold: 0.2 keep_top_k: 9 "
        "nms_param { nms_threshold: 0.3 top_k: 20 }",
        "background_label_id: 0 code_type: CORNER confidence_threshold: 0.3 keep_top_k: 500 "
        "nms_param { nms_threshold: 0.4 top_k: 400 }",
    ],
)
def test_detections(tmp_path: Path, settings: str, shared: bool):
    net = ssd(tmp_path, settings, shared=shared)
    data = normal(1, 3, 24, 24, seed=12) * 2
    got = run(net, data=data)["found"]
    theirs = cv2.dnn.readNetFromCaffe(str(net), str(net.with_suffix(".caffemodel")))
    theirs.setInput(data)
    want = theirs.forward()
    want = want[:, :, want[0, 0, :, 2] > 0]  # it pads with zeros
    assert got.shape == want.shape
    assert got.shape[2] > 4
    np.testing.assert_allclose(in_order(got), in_order(want), rtol=1e-3, atol=2e-4)
    np.testing.assert_array_equal(got, in_order(got))


def in_order(rows: np.ndarray) -> np.ndarray:
    """Sorted by class and descending score, as in Caffe but not in OpenCV."""
    return rows[:, :, np.lexsort((-rows[0, 0, :, 2], rows[0, 0, :, 1]))]


def test_nothing_found(tmp_path: Path):
    net = ssd(tmp_path, "confidence_threshold: 0.9999 code_type: CENTER_SIZE")
    assert run(net, data=np.zeros((1, 3, 24, 24), np.float32))["found"].shape == (1, 1, 0, 7)


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ("nms_param { eta: 0.9 }", Unsupported, "adaptive thresholds"),
        ("code_type: POLAR", Unsupported, "code_type POLAR; CORNER"),
        ("keep_top_k: 0", BadFile, "keeps no boxes"),
        ("nms_param { nms_threshold: 3 }", BadFile, "nms_threshold is 3"),
        ("background_label_id: 0 } detection_output_param { num_classes: 7", BadFile, "7 classes"),
    ],
)
def test_detections_that_make_no_sense(tmp_path: Path, settings: str, error: type, words: str):
    with pytest.raises(error, match=words):
        intaglio.load(ssd(tmp_path, settings))


def test_files_of_two_names(tmp_path: Path):
    net = ssd(tmp_path, "code_type: CENTER_SIZE")
    other = net.with_name("numbers.caffemodel")
    net.with_suffix(".caffemodel").rename(other)
    alone = [intaglio.load(p).output_names for p in (net, other)]
    assert alone == [["found"], ["found"]]
    other.with_name("more.caffemodel").write_bytes(b"")
    assert intaglio.load(net, weights=other).output_names == ["found"]
    command = [sys.executable, "-m", "intaglio", "inspect", str(net)]
    done = subprocess.run([*command, "--blobs", str(other)], capture_output=True, text=True)
    assert "found  f32[1x1x<=" in done.stdout, done.stderr
    with pytest.raises(BadFile, match="one of two files"):
        intaglio.load(net)


@pytest.mark.parametrize("count", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_mutated_files_are_read_or_refused(tmp_path: Path, count: int):
    net = ssd(tmp_path, "keep_top_k: 9 nms_param { top_k: 20 }")
    intaglio.load(net)  # mutants of a file that does not load would test nothing
    text, random = net.read_bytes(), np.random.default_rng(count)
    for _ in range(count):
        bad = bytearray(text)
        for _ in range(random.integers(1, 4)):
            bad[random.integers(len(bad))] = random.integers(32, 127)
        net.write_bytes(bad)
        try:
            intaglio.load(net)
        except IntaglioError as e:
            assert "\n" not in str(e)  # noqa: PT017
