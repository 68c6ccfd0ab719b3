"""Darknet models, written by the tests, against OpenCV; and invalid files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio.errors import BadFile, BadInput, IntaglioError, Unsupported

cv2 = pytest.importorskip("cv2")
if not hasattr(cv2.dnn, "readNetFromDarknet"):
    pytest.skip("OpenCV 5 reads no Darknet models", allow_module_level=True)

NET = "[net]\nwidth=32\nheight=32\nchannels=3\n"
CONV = "[convolutional]\nbatch_normalize=1\nfilters={}\nsize={}\nstride={}\npad=1\nactivation={}\n"
TINY = (
    NET
    + CONV.format(16, 3, 2, "leaky")
    + CONV.format(16, 1, 1, "mish")
    + "[convolutional]\ngroups=16\nbatch_normalize=1\nfilters=16\nsize=3\npad=1\nactivation=relu\n"
    + "[shortcut]\nfrom=-3\nactivation=linear\n"
    + "[maxpool]\nsize=2\nstride=2\n"
    + "[route]\nlayers=-1\ngroups=2\ngroup_id=1\n"
    + CONV.format(8, 3, 1, "swish")
    + "[route]\nlayers=-1,-2\n"
    + "[maxpool]\nsize=3\nstride=1\n"
    + "[upsample]\nstride=2\n"
)
YOLO = (
    "[convolutional]\nfilters=14\nsize=1\nactivation=linear\n"
    "[yolo]\nmask=1,2\nanchors=10,14, 23,27, 37,58\nclasses=2\nnum=3\nscale_x_y={}\n"
)
REGION = (
    "[convolutional]\nfilters=14\nsize=1\nactivation=linear\n"
    "[region]\nanchors=1.1,1.2, 2.3,2.1\nclasses=2\nnum=2\nsoftmax=1\n"
)


def write(folder: Path, cfg: str, seed: int = 0) -> Path:
    """A model whose weights are random; variances are positive."""
    (folder / "net.cfg").write_text(cfg)
    random = np.random.default_rng(seed)
    sizes, channels = [], 3
    known: list[int] = []
    for part in cfg.split("[")[2:]:
        name, *lines = part.splitlines()
        s = dict(line.split("=", 1) for line in lines if "=" in line)
        if name == "convolutional]":
            out, k, groups = int(s["filters"]), int(s["size"]), int(s.get("groups", 1))
            sizes += [random.normal(0, 0.1, out)]
            if "batch_normalize" in s:
                sizes += [
                    random.normal(1, 0.1, out),
                    random.normal(0, 0.1, out),
                    random.uniform(0.5, 1.5, out),
                ]
            fan = channels // groups * k * k
            sizes += [random.normal(0, 1.5 / fan**0.5, out * fan)]
            channels = out
        elif name == "route]":
            picked = [known[int(i)] for i in s["layers"].split(",")]
            channels = sum(picked) // int(s.get("groups", 1))
        known.append(channels)
    head = np.array([0, 2, 5, 0, 0], "<i4").tobytes()
    (folder / "net.weights").write_bytes(head + np.concatenate(sizes).astype("<f4").tobytes())
    return folder / "net.cfg"


def both(cfg: Path) -> tuple[list[np.ndarray], list[np.ndarray]]:
    x = np.random.default_rng(7).uniform(0, 1, (1, 3, 32, 32)).astype(np.float32)
    net = cv2.dnn.readNetFromDarknet(str(cfg), str(cfg.with_suffix(".weights")))
    net.setInput(x)
    want = net.forward(net.getUnconnectedOutLayersNames())
    with intaglio.open(intaglio.compile(cfg)) as session:
        return list(session.run({"data": x}).values()), list(want)


@pytest.mark.parametrize("cfg", [TINY, TINY + CONV.format(8, 3, 1, "logistic")])
def test_images(tmp_path: Path, cfg: str):
    (ours,), (theirs,) = both(write(tmp_path, cfg))
    np.testing.assert_allclose(ours, theirs, atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("head", [YOLO.format("1.0"), YOLO.format("1.05"), REGION])
def test_heads(tmp_path: Path, head: str):
    (ours,), (theirs,) = both(write(tmp_path, TINY + head))
    np.testing.assert_allclose(ours[0, :, :5], theirs[:, :5], atol=2e-4, rtol=1e-3)
    kept = theirs[:, 5:] > 0  # OpenCV drops scores below a threshold
    assert kept.any()
    np.testing.assert_allclose(ours[0, :, 5:][kept], theirs[:, 5:][kept], atol=2e-4, rtol=1e-3)


def test_either_file_names_the_model(tmp_path: Path):
    cfg = write(tmp_path, TINY + YOLO.format("1.0"))
    graph = intaglio.load(cfg.with_suffix(".weights"))
    assert graph.output_names == ["yolo_11"]
    cut = intaglio.load(cfg, outputs=["convolutional_10"], shapes={"data": (2, 3, 64, 32)})
    assert cut.outputs[0].shape == (2, 14, 32, 16)


def test_dense_layers(tmp_path: Path):
    cfg = NET + "[avgpool]\n[dropout]\n[connected]\noutput=4\nactivation=relu\n[softmax]\n"
    (tmp_path / "net.cfg").write_text(cfg)
    w = np.random.default_rng(1).normal(size=(4, 3)).astype("<f4")
    b = np.array([0.1, -0.2, 0.3, 0.0], "<f4")
    head = np.array(
        [0, 1, 0, 0], "<i4"
    ).tobytes()  # an old file stores the image counter in 4 bytes
    (tmp_path / "net.weights").write_bytes(head + b.tobytes() + w.tobytes())
    x = np.random.default_rng(2).normal(size=(1, 3, 32, 32)).astype(np.float32)
    got = intaglio.interpret(intaglio.load(tmp_path / "net.cfg"), {"data": x})["softmax_3"]
    y = np.maximum(x.mean((2, 3)) @ w.T + b, 0)
    np.testing.assert_allclose(got, np.exp(y) / np.exp(y).sum(), rtol=1e-5)


def test_the_old_reorg_moves_as_darknet_does(tmp_path: Path):
    (tmp_path / "net.cfg").write_text("[net]\nwidth=4\nheight=6\nchannels=8\n[reorg]\nstride=2\n")
    (tmp_path / "net.weights").write_bytes(bytes(16))
    x = np.arange(8 * 6 * 4, dtype=np.float32).reshape(1, 8, 6, 4)
    got = intaglio.interpret(intaglio.load(tmp_path / "net.cfg"), {"data": x})["reorg_0"]
    flat, want = x.ravel(), np.zeros(x.size, np.float32)
    c, h, w, s = 8, 6, 4, 2
    for k in range(c):
        for j in range(h):
            for i in range(w):
                offset, c2 = divmod(k, c // (s * s))
                row, column = j * s + offset // s, i * s + offset % s
                want[i + w * (j + h * k)] = flat[column + w * s * (row + h * s * c2)]
    assert got.shape == (1, 32, 3, 2)
    assert np.array_equal(got.ravel(), want)


@pytest.mark.parametrize(
    ("cfg", "error", "words"),
    [
        ("layer\n", BadFile, "ONNX"),
        (NET + "[convolutional]\nfilters=x\n", BadFile, "filters=x is not a number"),
        (NET + "[convolutional]\nfilters=99999\nsize=99\n", BadFile, "ends in .convolutional."),
        (NET + "[route]\nlayers=5\n", BadFile, "which does not precede it"),
        (NET + "[maxpool]\nsize=77\npadding=0\n", BadFile, "windows of 77"),
        (NET + "[upsample]\nstride=1000\n", Unsupported, "stride=1000"),
        (
            NET + "[conv_lstm]\n",
            Unsupported,
            "conv_lstm. in line 5 is not supported; supported sections are",
        ),
        (NET + "[crnn]\noutput=2\nsize=4\n", BadFile, "pixels of padding are not supported"),
        (NET + "[local]\nsize=99\n", BadFile, "1 filters of 99"),
        (NET + "[crop]\ncrop_height=99\n", BadFile, "99 x 1 does not fit"),
        (NET + "[convolutional]\nactivation=wave\n", IntaglioError, "darknet"),
        (NET, BadFile, "has no layers"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, cfg: str, error: type, words: str):
    (tmp_path / "net.cfg").write_text(cfg)
    (tmp_path / "net.weights").write_bytes(bytes(20 + 4 * 28))
    with pytest.raises(error, match=words) as caught:
        intaglio.load(tmp_path / "net.cfg")
    assert isinstance(caught.value, IntaglioError)


def test_halves_and_strangers(tmp_path: Path):
    cfg = write(tmp_path, TINY)
    with pytest.raises(BadInput, match="no input is called 'x'"):
        intaglio.load(cfg, shapes={"x": (1, 3, 32, 32)})
    raw = cfg.with_suffix(".weights").read_bytes()
    cfg.with_suffix(".weights").write_bytes(raw + bytes(8))
    with pytest.raises(BadFile, match=r"2 floats .* are left"):
        intaglio.load(cfg)
    cfg.with_suffix(".weights").unlink()
    with pytest.raises(BadFile, match="one of two files"):
        intaglio.load(cfg)


@pytest.mark.parametrize("count", [100, pytest.param(2000, marks=pytest.mark.slow)])
def test_mutated_files_are_read_or_refused(tmp_path: Path, count: int):
    cfg = write(tmp_path, TINY + YOLO.format("1.0"))
    intaglio.load(cfg)  # mutants of a file that does not load would test nothing
    text, random = bytearray(cfg.read_bytes()), np.random.default_rng(count)
    for _ in range(count):
        bad = bytearray(text)
        for _ in range(random.integers(1, 4)):
            bad[random.integers(len(bad))] = random.choice(list(b"0123456789-=[]\nabx,"))
        cfg.write_bytes(bad)
        try:
            intaglio.load(cfg)
        except IntaglioError as e:
            assert "\n" not in str(e)  # noqa: PT017
