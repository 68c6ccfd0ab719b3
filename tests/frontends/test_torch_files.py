"""PyTorch files, written by the tests without PyTorch."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from tests.frontends.torch_build import Object, Quantized, exported, script, weights

import intaglio
from intaglio.cli import main
from intaglio.errors import BadInput, Unsupported
from intaglio.frontends.options import ImportOptions
from intaglio.frontends.torch import load_torch

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 4)).astype(np.float32)
W = RNG.standard_normal((3, 4)).astype(np.float32)
B = RNG.standard_normal(3).astype(np.float32)

NET = """class Net(Module):
  __parameters__ = ["weight", "bias", ]
  weight : Tensor
  bias : Tensor
  act : __torch__.nn.Act
  def forward(self: __torch__.Net,
    x: Tensor,
    scale: float=2.,
    mask: Optional[Tensor]=None) -> Tuple[Tensor, Tensor]:
    _0 = self.weight
    y = torch.linear(x, _0, self.bias)
    if torch.__isnot__(mask, None):
      y0 = torch.mul(y, ops.prim.unchecked_unwrap_optional(mask))
    else:
      y0 = y
    z = (self.act).forward(y0, )
    total = annotate(List[Tensor], [])
    for i in range(torch.size(z, 1)):
      _1 = torch.append(total, torch.select(z, 1, i))
    s = torch.mul(torch.stack(total, 1), scale)
    return (z, torch.add(s, CONSTANTS.c0))
"""
ACT = """class Act(Module):
  __parameters__ = []
  slope : float
  def forward(self: __torch__.nn.Act,
    x: Tensor) -> Tensor:
    slope = self.slope
    return torch.leaky_relu(x, slope)
"""


def net(traced=True, **changes) -> bytes:
    root = Object(
        "__torch__.Net", {"weight": W, "bias": B, "act": Object("__torch__.nn.Act", {"slope": 0.1})}
    )
    code = {"__torch__": NET, "__torch__.nn": ACT, **changes}
    return script(code, root, (np.array(3, np.int64),), [X] if traced else None)


def run(graph, *arrays):
    """The interpreter's outputs, which must equal those of the compiled model."""
    feeds = {v.name: a for v, a in zip(graph.inputs, arrays, strict=True)}
    want = list(intaglio.interpret(graph, feeds).values())
    with intaglio.open(intaglio.compile(graph)) as session:
        got = [np.array(v) for v in session.run(feeds).values()]
    for a, b in zip(want, got, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)
    return want


def forward(x, mask=1.0):
    y = (x @ W.T + B) * mask
    z = np.where(y > 0, y, np.float32(0.1) * y)
    return z, z * 2 + 3


def test_modules_are_inlined_and_loops_unrolled(tmp_path):
    path = tmp_path / "net.pt"
    path.write_bytes(net())
    graph = intaglio.load(path)
    assert [(v.name, v.shape) for v in graph.inputs] == [("x", (2, 4))]
    assert graph.output_names == ["output.0", "output.1"]
    for got, want in zip(run(graph, X), forward(X), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_shapes_and_optional_inputs_by_the_user():
    with pytest.raises(BadInput, match=r"has no shape of input 'x'.*shapes={.x"):
        load_torch(net(traced=False))
    graph = load_torch(net(traced=False), ImportOptions(shapes={"x": (5, 4), "mask": (3,)}))
    x, mask = RNG.standard_normal((5, 4)).astype(np.float32), np.array([1, 0, 2], np.float32)
    for got, want in zip(run(graph, x, mask), forward(x, mask), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    with pytest.raises(BadInput, match="no input is called 'z'"):
        load_torch(net(), ImportOptions(shapes={"z": (1,)}))
    with pytest.raises(BadInput, match="has shape"):
        load_torch(net(), ImportOptions(shapes={"x": (1, 2, 4)}))


def test_command_line(tmp_path, capsys):
    path = tmp_path / "net.pt"
    path.write_bytes(
        script({"__torch__": ACT.replace("nn.Act", "Act")}, Object("__torch__.Act", {"slope": 0.1}))
    )
    main(["inspect", str(path), "--shape", "x=5x4:f16", "--json"])
    assert '"f16"' in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["inspect", str(path), "--shape", "x=5x4:word"])
    assert "element type 'word' of input 'x' is not one of" in capsys.readouterr().err


def test_numbers_by_the_user():
    graph = load_torch(net(), ImportOptions(values={"scale": 4.0}))
    np.testing.assert_allclose(run(graph, X)[1], forward(X)[0] * 4 + 3, rtol=1e-5, atol=1e-5)


def test_quantised_weights_keep_their_scales():
    code = """class Net(Module):
  packed : __torch__.torch.classes.quantized.LinearPackedParamsBase
  def forward(self: __torch__.Net, x: Tensor) -> Tensor:
    q = torch.quantize_per_tensor(x, 0.05, 128, 13)
    y = ops.quantized.linear(q, self.packed, 0.10000000000000001, 100)
    return torch.dequantize(torch.relu(y))
"""
    w8 = RNG.integers(-127, 128, (3, 4)).astype(np.int8)
    scales = np.array([0.01, 0.02, 0.03])
    q = Quantized(w8, scales, np.zeros(3, np.int64), 0)
    packed = Object("__torch__.torch.classes.quantized.LinearPackedParamsBase", (q, B))
    data = script({"__torch__": code}, Object("__torch__.Net", {"packed": packed}), (), [X])
    graph = load_torch(data)
    kinds = [n.op for n in graph.nodes()]
    assert kinds.count("quantize_linear") == 3
    weight = next(
        n for n in graph.nodes() if n.op == "dequantize_linear" and n.inputs[0].data is not None
    )
    np.testing.assert_array_equal(weight.inputs[0].data, w8)
    x = (np.clip(np.rint(X / np.float32(0.05)) + 128, 0, 255) - 128) * np.float32(0.05)
    y = x @ (w8 * scales[:, None].astype(np.float32)).T + B
    stored = np.clip(np.rint(y / np.float32(0.1)) + 100, 0, 255)
    want = np.maximum((stored - 100) * np.float32(0.1), 0)
    np.testing.assert_allclose(run(graph, X)[0], want, atol=0.11)


def test_writes_through_views_are_seen_by_all():
    code = """class Net(Module):
  def forward(self: __torch__.Net, x: Tensor) -> Tuple[Tensor, Tensor]:
    y = torch.clone(x)
    flat = torch.view(y, [8])
    _0 = torch.copy_(torch.select(y, 0, 1), torch.select(x, 0, 0))
    _1 = torch.add_(torch.slice(y, 1, 0, 9223372036854775807, 2), 10)
    return (y, torch.neg(flat))
"""
    graph = load_torch(script({"__torch__": code}, Object("__torch__.Net", {}), (), [X]))
    want = X.copy()
    want[1] = want[0]
    want[:, ::2] += 10
    y, flat = run(graph, X)
    np.testing.assert_allclose(y, want, rtol=1e-6)
    np.testing.assert_allclose(flat, -want.ravel(), rtol=1e-6)


def program(old=False, **more):
    return exported(
        {"x": (2, 4), **more},
        {"w": W, "b": B},
        [
            ("torch.ops.aten.linear.default", ["x", "w", "b"], "linear"),
            ("torch.ops.aten.clamp.default", ["linear", -0.5, 0.5], "clamp"),
            ("torch.ops.aten.view.default", ["clamp", (3, 2)], "view"),
        ],
        ["view"],
        old,
    )


@pytest.mark.parametrize("old", [False, True])
def test_exported_programs(tmp_path, old):
    path = tmp_path / "net.pt2"
    path.write_bytes(program(old))
    graph = intaglio.load(path)
    want = np.clip(X @ W.T + B, -0.5, 0.5).reshape(3, 2)
    np.testing.assert_allclose(run(graph, X)[0], want, rtol=1e-5, atol=1e-6)


def test_open_dimensions_of_exported_programs():
    data = exported({"x": ("s0", 4)}, {}, [("torch.ops.aten.relu.default", ["x"], "y")], ["y"])
    with pytest.raises(BadInput, match=r"dimension 's0' of input 'x' is open.*dims={.s0.: 1}"):
        load_torch(data)
    assert load_torch(data, ImportOptions(dims={"s0": 3})).outputs[0].shape == (3, 4)
    assert load_torch(data, ImportOptions(shapes={"x": (5, 4)})).outputs[0].shape == (5, 4)


def test_weights_alone_are_explained(tmp_path):
    path = tmp_path / "w.pth"
    path.write_bytes(weights({"fc.weight": W, "fc.bias": B}))
    with pytest.raises(Unsupported, match=r"2 tensors \(fc.weight, fc.bias\), but no network"):
        intaglio.load(path)
    path.write_bytes(weights({"model": {"fc.weight": W}, "epoch": 3}))
    with pytest.raises(Unsupported, match="a checkpoint with model, epoch"):
        intaglio.load(path)
    path.write_bytes(weights(Object("shop.models.Net", {"w": W})))
    with pytest.raises(Unsupported, match=r"a pickled Python object of class shop\.models\.Net"):
        intaglio.load(path)
    path.write_bytes(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.")
    with pytest.raises(Unsupported, match=r"before PyTorch 1\.6.*load_state_dict"):
        intaglio.load(path)


def test_layers_of_the_mobile_optimiser():
    code = """class Net(Module):
  def forward(self: __torch__.Net, x: Tensor) -> Tensor:
    y = ops.prepacked.conv2d_clamp_run(x, CONSTANTS.c0)
    return ops.prepacked.linear_clamp_run(torch.flatten(y, 1), CONSTANTS.c1)
"""
    front = "__torch__.torch.classes.xnnpack."
    k = RNG.standard_normal((3, 2, 1, 1)).astype(np.float32)
    v = RNG.standard_normal((2, 12)).astype(np.float32)
    conv = Object(f"{front}Conv2dOpContext", (k, B, [1, 1], [0, 0], [1, 1], 1, 0.0, 0.5))
    dense = Object(f"{front}LinearOpContext", (v, None, None, None))
    x = RNG.standard_normal((1, 2, 2, 2)).astype(np.float32)
    data = script({"__torch__": code}, Object("__torch__.Net", {}), (conv, dense), [x])
    y = np.clip(np.einsum("oc,bchw->bohw", k[:, :, 0, 0], x) + B[:, None, None], 0, 0.5)
    got = run(load_torch(data), x)[0]
    np.testing.assert_allclose(got, y.reshape(1, -1) @ v.T, rtol=1e-4, atol=1e-5)


def test_operators_of_torchvision():
    code = """class Net(Module):
  def forward(self: __torch__.Net, boxes: Tensor, scores: Tensor,
    x: Tensor) -> Tuple[Tensor, Tensor]:
    kept = ops.torchvision.nms(boxes, scores, 0.5)
    ids = torch.zeros([3, 1])
    rois = torch.cat([ids, boxes], 1)
    return (kept, ops.torchvision.roi_align(x, rois, 1., 2, 2, 2, True))
"""
    boxes = np.array([[0, 0, 4, 4], [0, 0, 4, 5], [4, 4, 8, 8]], np.float32)
    scores = np.array([0.5, 0.9, 0.7], np.float32)
    image = np.broadcast_to(np.arange(8, dtype=np.float32), (1, 1, 8, 8)).copy()
    graph = load_torch(
        script({"__torch__": code}, Object("__torch__.Net", {}), (), [boxes, scores, image])
    )
    kept, cells = run(graph, boxes, scores, image)
    assert kept.tolist() == [1, 2]
    np.testing.assert_allclose(cells[:, 0, 0], [[0.5, 2.5], [0.5, 2.5], [4.5, 6.5]], atol=1e-5)


def test_unknown_operators_are_counted():
    code = """class Net(Module):
  def forward(self: __torch__.Net, x: Tensor) -> Tensor:
    a = torch.wobble(torch.wobble(x))
    b, c, = ops.shop.split_up(a)
    return torch.add(torch.relu(b), c)
"""
    data = script({"__torch__": code}, Object("__torch__.Net", {}), (), [X])
    with pytest.raises(Unsupported, match=r"not supported: wobble \(2x\), shop::split_up \(1x\)"):
        load_torch(data)


def test_nothing_of_a_model_outlives_its_graph():
    """Loading again takes no more memory."""
    kept = []
    for data in (net(), program()) * 3:
        load_torch(data)
        gc.collect()
        kept.append(
            sum(type(o).__name__ in ("Script", "_Exported", "Archive") for o in gc.get_objects())
        )
    assert kept[-1] == kept[-3] == kept[1]
