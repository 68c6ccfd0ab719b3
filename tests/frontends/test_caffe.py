"""Caffe models, written by the tests, against OpenCV; and invalid files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio.errors import BadFile, BadInput, IntaglioError, Unsupported

cv2 = pytest.importorskip("cv2")
if not hasattr(cv2.dnn, "readNetFromCaffe"):
    pytest.skip("OpenCV 5 reads no Caffe models", allow_module_level=True)

INPUT = 'name: "net"\ninput: "data"\ninput_dim: 1\ninput_dim: 6\ninput_dim: 9\ninput_dim: 11\n'


# ---- writing protocol buffers --------------------------------------------------------------------
def varint(n: int) -> bytes:
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number: int, data: bytes | str) -> bytes:
    raw = data.encode() if isinstance(data, str) else data
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def blob(array: np.ndarray, old: bool = False) -> bytes:
    data = field(5, array.astype("<f4").tobytes())
    if old:
        shape = [*[1] * (4 - array.ndim), *array.shape]
        return b"".join(varint(n << 3) + varint(d) for n, d in enumerate(shape, 1)) + data
    return field(7, field(1, b"".join(map(varint, array.shape)))) + data


def model(folder: Path, text: str, weights: dict[str, list[np.ndarray]], old: bool = False) -> Path:
    """Write both files; `old` is the form of layers before 2014."""
    name, held, here = (4, 6, 2) if old else (1, 7, 100)
    layers = [
        field(here, field(name, n) + b"".join(field(held, blob(b, old)) for b in blobs))
        for n, blobs in weights.items()
    ]
    (folder / "net.prototxt").write_text(text)
    (folder / "net.caffemodel").write_bytes(b"".join(layers))
    return folder / "net.prototxt"


def layer(
    kind: str, settings: str = "", bottoms: str = "data", tops: str = "y", name: str = "l"
) -> str:
    rows = "".join(f' bottom: "{b}"' for b in bottoms.split())
    rows += "".join(f' top: "{t}"' for t in tops.split())
    return f'layer {{ name: "{name}" type: "{kind}"{rows} {settings} }}\n'


def normal(*shape: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def both(net: Path) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    graph = intaglio.load(net)
    x = graph.inputs[0]
    data = normal(*x.shape, seed=1)
    theirs = cv2.dnn.readNetFromCaffe(str(net), str(net.with_suffix(".caffemodel")))
    theirs.setInput(data, x.name)
    with intaglio.open(intaglio.compile(graph)) as session:
        ours = session.run({x.name: data})
    return ours, list(theirs.forward(theirs.getUnconnectedOutLayersNames()))


positive = np.abs(normal(6)) + 0.5
CASES: dict[str, tuple[str, list[np.ndarray]]] = {
    "conv": (
        layer("Convolution", "convolution_param { num_output: 8 kernel_size: 3 pad: 1 stride: 2 }"),
        [normal(8, 6, 3, 3), normal(8)],
    ),
    "dilated": (
        layer(
            "Convolution",
            "convolution_param { num_output: 4 kernel_size: 3 dilation: 2 "
            "group: 2 bias_term: false }",
        ),
        [normal(4, 3, 3, 3)],
    ),
    "oblong": (
        layer(
            "Convolution",
            "convolution_param { num_output: 4 kernel_h: 1 kernel_w: 3 "
            "pad_h: 0 pad_w: 1 stride_h: 2 stride_w: 1 }",
        ),
        [normal(4, 6, 1, 3), normal(4)],
    ),
    "deconv": (
        layer(
            "Deconvolution", "convolution_param { num_output: 5 kernel_size: 4 stride: 2 pad: 1 }"
        ),
        [normal(6, 5, 4, 4), normal(5)],
    ),
    "dense": (
        layer("InnerProduct", "inner_product_param { num_output: 7 }"),
        [normal(7, 594), normal(7)],
    ),
    "max": (layer("Pooling", "pooling_param { pool: MAX kernel_size: 3 stride: 2 }"), []),
    "padded": (layer("Pooling", "pooling_param { pool: MAX kernel_size: 2 stride: 2 pad: 1 }"), []),
    "mean": (layer("Pooling", "pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }"), []),
    "global": (layer("Pooling", "pooling_param { pool: AVE global_pooling: true }"), []),
    "leaky": (layer("ReLU", "relu_param { negative_slope: 0.2 }"), []),
    "prelu": (layer("PReLU"), [normal(6)]),
    "elu": (layer("ELU", "elu_param { alpha: 0.7 }"), []),
    "tanh": (layer("TanH"), []),
    "power": (layer("Power", "power_param { power: 2 scale: 0.5 shift: 1.5 }"), []),
    "batch norm": (layer("BatchNorm"), [normal(6), positive, np.float32([2.0])]),
    "scale": (layer("Scale", "scale_param { bias_term: true }"), [normal(6), normal(6)]),
    "lrn": (layer("LRN", "lrn_param { local_size: 3 alpha: 0.1 beta: 0.6 }"), []),
    "normalize": (
        layer("Normalize", "norm_param { across_spatial: false channel_shared: false }"),
        [normal(6)],
    ),
    "softmax": (layer("Softmax"), []),
    "permute": (layer("Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }"), []),
    "flatten": (layer("Flatten"), []),
    "reshape": (layer("Reshape", "reshape_param { shape { dim: 0 dim: -1 dim: 11 } }"), []),
    "shuffle": (layer("ShuffleChannel", "shuffle_channel_param { group: 3 }"), []),
}


@pytest.mark.parametrize("name", CASES)
def test_layers(tmp_path: Path, name: str):
    text, blobs = CASES[name]
    ours, theirs = both(model(tmp_path, INPUT + text, {"l": blobs or [np.float32([0.0])]}))
    np.testing.assert_allclose(ours["y"].reshape(theirs[0].shape), theirs[0], atol=2e-5, rtol=1e-4)


def test_nets_join_and_part(tmp_path: Path):
    text = INPUT + layer(
        "Slice", "slice_param { slice_point: 2 slice_point: 3 }", tops="a b c", name="s"
    )
    text += layer("Concat", "", "c a", "d", "k") + layer("ReLU", "", "d", "d", "in place")
    text += layer("Eltwise", "eltwise_param { coeff: 2 coeff: -1 }", "d d", "e", "e")
    text += layer("Eltwise", "eltwise_param { operation: MAX }", "d e", "f", "f")
    net = model(tmp_path, text, {"none": [np.float32([0.0])]})
    assert intaglio.load(net).output_names == ["b", "f"]
    data = normal(1, 6, 9, 11, seed=1)
    ours = intaglio.interpret(intaglio.load(net), {"data": data})
    theirs = cv2.dnn.readNetFromCaffe(str(net), str(net.with_suffix(".caffemodel")))
    theirs.setInput(data)
    np.testing.assert_allclose(ours["f"], theirs.forward("f"), atol=1e-5)
    np.testing.assert_array_equal(ours["b"], data[:, 2:3])


IN_PLACE = [
    layer("Power", "power_param { scale: 0.5 shift: 0.25 }", "data", "data", "first"),
    layer("ReLU", "", "data", "data", "second"),
]


def test_a_tensor_written_in_place_has_its_name_once(tmp_path: Path):
    text = INPUT + layer("AbsVal", "", "data", "a", "first")
    text += layer("Power", "power_param { shift: 1 }", "a", "a", "a") + layer("TanH", "", "a", "y")
    graph = intaglio.load(model(tmp_path, text, {"l": [np.zeros(1, np.float32)]}))
    names = [v.name for n in graph.nodes() for v in n.outputs]
    assert names.count("a") == 1
    assert "first" in names
    kept: dict[str, np.ndarray] = {}
    data = np.full((1, 6, 9, 11), -3, np.float32)
    intaglio.interpret(graph, {"data": data}, kept)
    assert kept["a"].max() == 4  # what the last layer writes


@pytest.mark.parametrize("end", ["", layer("TanH")])
@pytest.mark.parametrize("declared", [True, False])
def test_layers_in_place_on_the_input(tmp_path: Path, declared: bool, end: str):
    dims = "input_param { shape { dim: 1 dim: 6 dim: 9 dim: 11 } }"
    start = INPUT if declared else layer("Input", dims, "", "data", "input")
    net = model(tmp_path, start + "".join(IN_PLACE) + end, {"none": [np.float32([0.0])]})
    ours, theirs = both(net)
    assert list(ours) == ["y" if end else "data"]
    np.testing.assert_allclose(*ours.values(), theirs[0], atol=1e-6)


def test_a_chosen_input_replaces_the_last_value_of_a_blob(tmp_path: Path):
    text = INPUT + layer("Power", "power_param { scale: 2 }", tops="a", name="p")
    text += layer("ReLU", "", "a", "a", "in place") + layer("AbsVal", "", "a")
    net = model(tmp_path, text, {"none": [np.float32([0.0])]})
    graph = intaglio.load(net, inputs=["a"], shapes={"a": (1, 2)})
    got = intaglio.interpret(graph, {"a": np.float32([[-1, 2]])})["y"]
    np.testing.assert_array_equal(got, [[1, 2]])


def test_batch_norm_with_the_statistics_of_the_batch(tmp_path: Path):
    """OpenCV normalises each image alone, and adds epsilon to the deviation; Caffe takes the whole
    batch and adds it to the variance. One image with a small epsilon is the same for both."""
    text = INPUT + layer("BatchNorm", "batch_norm_param { use_global_stats: false eps: 0.00001 }")
    net = model(tmp_path, text, {"l": [normal(6), positive, np.float32([2.0])]})
    ours, theirs = both(net)
    np.testing.assert_allclose(ours["y"], theirs[0], atol=1e-4)
    net.write_text(text.replace("0.00001", "0.1"))
    data = normal(2, 6, 9, 11) + 3
    graph = intaglio.load(net, shapes={"data": data.shape})
    mean, variance = (f(data, axis=(0, 2, 3), keepdims=True) for f in (np.mean, np.var))
    want = (data - mean) / np.sqrt(variance + 0.1)
    np.testing.assert_allclose(intaglio.interpret(graph, {"data": data})["y"], want, atol=1e-5)


def test_layers_that_the_test_phase_excludes(tmp_path: Path):
    text = INPUT + layer("ReLU", "exclude { phase: TEST }", "data", "data", "x") + layer("AbsVal")
    net = model(tmp_path, text, {"none": [np.float32([0.0])]})
    data = normal(1, 6, 9, 11)
    got = intaglio.interpret(intaglio.load(net), {"data": data})["y"]
    np.testing.assert_array_equal(got, np.abs(data))


def test_boxes_follow_from_shapes(tmp_path: Path):
    settings = (
        "prior_box_param { min_size: 3 max_size: 5 aspect_ratio: 2 flip: true clip: true "
        "variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 }"
    )
    text = INPUT + layer(
        "Pooling", "pooling_param { pool: MAX kernel_size: 3 stride: 3 }", tops="p"
    )
    text += layer("PriorBox", settings, "p data", "y", "b")
    ours, theirs = both(model(tmp_path, text, {"none": [np.float32([0.0])]}))
    np.testing.assert_allclose(ours["y"], theirs[0].reshape(ours["y"].shape), atol=1e-6)


def test_old_files(tmp_path: Path):
    text = INPUT + (
        'layers { name: "l" type: CONVOLUTION bottom: "data" top: "y" '
        "convolution_param < num_output: 4 kernel_size: 1 > }"
    )
    ours, theirs = both(model(tmp_path, text, {"l": [normal(4, 6, 1, 1), normal(4)]}, old=True))
    np.testing.assert_allclose(ours["y"], theirs[0], atol=1e-5)


OLD = [
    ("CONVOLUTION", "convolution_param { num_output: 6 kernel_size: 3 pad: 1 }"),
    ("RELU", ""),
    ("LRN", "lrn_param { local_size: 3 alpha: 0.1 beta: 0.6 }"),
    ("POOLING", "pooling_param { kernel_size: 2 }"),
    ("SIGMOID", ""),
    ("TANH", ""),
    ("POWER", "power_param { scale: 2 }"),
    ("ABSVAL", ""),
    ("DROPOUT", ""),
    ("FLATTEN", ""),
    ("INNER_PRODUCT", "inner_product_param { num_output: 5 }"),
    ("SOFTMAX", ""),
]


def test_old_nets_layer_by_layer(tmp_path: Path):
    """Layers in place or not, with a training layer at either end."""
    text, last = INPUT + "layers { name: 'd' type: HDF5_DATA top: 'data' top: 'label' }\n", "data"
    for i, (kind, settings) in enumerate(OLD):
        text += f"layers {{ name: 'l{i}' type: {kind} bottom: '{last}' top: 't{i}' {settings} }}\n"
        last = f"t{i}"
    text += f"layers {{ name: 'loss' type: SOFTMAX_LOSS bottom: '{last}' bottom: 'label' }}\n"
    weights = {"l0": [normal(6, 6, 3, 3), normal(6)], "l10": [normal(5, 480), normal(5)]}
    net = model(tmp_path, text, weights, old=True)
    graph = intaglio.load(net)
    data = normal(1, 6, 9, 11, seed=1)
    got = intaglio.interpret(graph, {"data": data})[last]
    kept = "".join(
        line for line in text.splitlines(keepends=True) if "LOSS" not in line and "HDF5" not in line
    )
    net.write_text(kept)
    theirs = cv2.dnn.readNetFromCaffe(str(net), str(net.with_suffix(".caffemodel")))
    theirs.setInput(data)
    np.testing.assert_allclose(got, theirs.forward().reshape(got.shape), atol=1e-5)


def test_either_file_names_the_model_and_shapes_may_change(tmp_path: Path):
    text, blobs = CASES["conv"]
    net = model(tmp_path, INPUT + text, {"l": blobs})
    graph = intaglio.load(net.with_suffix(".caffemodel"), shapes={"data": (2, 6, 20, 20)})
    assert graph.outputs[0].shape == (2, 8, 10, 10)


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        (layer("Proposal"), Unsupported, "Proposal 'l' is not supported; cut the net"),
        (
            layer("Convolution", "convolution_param { num_output: 8 kernel_size: 5 }"),
            BadFile,
            "blob 0 is",
        ),
        (layer("ReLU", bottoms="ghost"), BadFile, "reads 'ghost', which no earlier layer computes"),
        (layer("Pooling", "pooling_param { kernel_size: 99 }"), BadFile, "does not fit"),
        (layer("Eltwise"), BadFile, "of 1 operands"),
        ('layer { name: "l"', BadFile, "not closed"),
        ("layer { } }", BadFile, "invalid at"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, error: type, words: str):
    net = model(tmp_path, INPUT + text, {"l": [normal(8, 6, 3, 3), normal(8)]})
    with pytest.raises(error, match=words):
        intaglio.load(net)


def test_inputs_that_are_missing(tmp_path: Path):
    text, blobs = CASES["conv"]
    net = model(tmp_path, INPUT + text, {"l": blobs})
    with pytest.raises(BadInput, match="no input is called 'x'"):
        intaglio.load(net, shapes={"x": (1,)})
    with pytest.raises(BadInput, match="no layer has the top 'z'; outputs are y"):
        intaglio.load(net, outputs=["z"])
    net.with_suffix(".caffemodel").unlink()
    with pytest.raises(BadFile, match="one of two files"):
        intaglio.load(net)


@pytest.mark.parametrize("count", [150, pytest.param(2000, marks=pytest.mark.slow)])
def test_mutated_files_are_read_or_refused(tmp_path: Path, count: int):
    text, blobs = CASES["conv"]
    text += layer("Pooling", "pooling_param { kernel_size: 2 }", "y", "z", "p")
    net = model(tmp_path, INPUT + text, {"l": blobs})
    intaglio.load(net)  # mutants of a file that does not load would test nothing
    random = np.random.default_rng(count)
    for i in range(count):
        path = net if i % 2 else net.with_suffix(".caffemodel")
        good = path.read_bytes()
        bad = bytearray(good)
        for _ in range(random.integers(1, 4)):
            place = random.integers(len(bad) if i % 2 else min(len(bad), 60))
            bad[place] = random.integers(256)
        path.write_bytes(bad)
        try:
            intaglio.load(net)
        except IntaglioError as e:
            assert "\n" not in str(e)  # noqa: PT017
        path.write_bytes(good)
