"""Quantised PyTorch models: FX, eager, dynamic, fake quantisation, torch.export."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (extra 'torch')")

import torch
from tests.frontends.test_torch import R, compare, saved
from torch import nn
from torch.ao import quantization as tq
from torch.ao.quantization import quantize_fx
from torch.nn import functional as F

import intaglio
from intaglio.frontends.options import ImportOptions
from intaglio.frontends.torch import load_torch

pytestmark = pytest.mark.filterwarnings("ignore")
X = R(1, 3, 16, 16)


class Block(nn.Module):
    """A net with all layers of quantised vision models."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU())
        self.deep = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.BatchNorm2d(8), nn.ReLU6())
        self.point = nn.Conv2d(8, 8, 1)
        self.up = nn.ConvTranspose2d(
            8, 8, 2, 2
        )  # PyTorch's x86 kernel is wrong for different channel counts
        self.pool, self.fc = nn.MaxPool2d(2), nn.Linear(24, 5)
        self.act, self.gate = nn.Hardswish(), nn.Sigmoid()

    def forward(self, x):
        x = self.first(x)
        y = self.point(self.deep(x)) + x
        y = self.act(y)
        z = F.interpolate(y * self.gate(y), scale_factor=2.0)
        z = torch.cat([self.pool(z), y], 1)
        a = F.adaptive_avg_pool2d(z, 1)
        b = F.adaptive_avg_pool2d(self.up(y), 1)
        return self.fc(torch.flatten(torch.cat([a, b], 1), 1))


def agrees(graph, module, x, step):
    """Equal to PyTorch in numpy; compiled to integers within one step of the output."""
    with torch.no_grad():
        want = module(x).numpy()
    feeds = {graph.inputs[0].name: x.numpy()}
    plain = next(iter(intaglio.interpret(graph, feeds).values()))
    with intaglio.open(intaglio.compile(graph)) as session:
        native = np.array(next(iter(session.run(feeds).values())))
    np.testing.assert_allclose(plain, want, atol=0.01 * step)
    assert np.abs(native - want).max() <= 1.01 * step


def trained(qat: bool):
    module = Block()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if qat:
            mapping = tq.get_default_qat_qconfig_mapping("x86")
            made = quantize_fx.prepare_qat_fx(module.train(), mapping, (X,))
            made(R(4, 3, 16, 16)).sum().backward()
        else:
            mapping = tq.get_default_qconfig_mapping("x86")
            made = quantize_fx.prepare_fx(module.eval(), mapping, (X,))
        for _ in range(4):
            made(R(2, 3, 16, 16))
        return quantize_fx.convert_fx(made.eval())


@pytest.mark.parametrize("qat", [False, True])
@pytest.mark.parametrize("way", ["trace", "script"])
def test_graph_mode(qat, way):
    torch.manual_seed(1)
    module = trained(qat)
    shapes = {"x": (1, 3, 16, 16)} if way == "script" else {}
    graph = load_torch(saved(module, [X], way), ImportOptions(shapes=shapes))
    kinds = [n.op for n in graph.nodes()]
    assert "quantize_linear" in kinds
    convs = [n for n in graph.nodes() if n.op == "conv"]
    weights = [n.inputs[1].producer for n in convs]
    assert all(w.op == "dequantize_linear" for w in weights)
    assert any(w.inputs[1].shape == (8,) for w in weights), "one scale per channel"
    agrees(graph, module, X, module.fc.scale)


def test_eager_mode():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.quant, self.dequant = tq.QuantStub(), tq.DeQuantStub()
            self.conv, self.relu, self.fc = nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Linear(4, 3)
            self.sum = torch.ao.nn.quantized.FloatFunctional()

        def forward(self, x):
            y = self.relu(self.conv(self.quant(x)))
            y = self.sum.add(y, y)
            return self.dequant(self.fc(y.mean((2, 3))))

    net = Net().eval()
    net.qconfig = tq.get_default_qconfig("x86")
    made = tq.prepare(tq.fuse_modules(net, [["conv", "relu"]]))
    for _ in range(3):
        made(R(2, 3, 16, 16))
    made = tq.convert(made)
    agrees(load_torch(saved(made, [X], "trace")), made, X, made.fc.scale)


@pytest.mark.parametrize("way", ["trace", "script"])
def test_dynamic(way):
    net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    made = tq.quantize_dynamic(net, {nn.Linear}, dtype=torch.qint8)
    x = R(5, 6)
    shapes = {"input": (5, 6)} if way == "script" else {}
    compare(load_torch(saved(made, [x], way), ImportOptions(shapes=shapes)), made, [x])


def test_simulated():
    class Net(nn.Module):
        def forward(self, x, w):
            x = torch.fake_quantize_per_tensor_affine(x, 0.05, 3, 0, 127)
            scales, zeros = torch.tensor([0.01, 0.02, 0.03]), torch.zeros(3, dtype=torch.int32)
            w = torch.fake_quantize_per_channel_affine(w, scales, zeros, 0, -128, 127)
            return F.linear(x, w)

    x, w = R(4, 6), R(3, 6)
    for way in ("trace", "export"):
        compare(load_torch(saved(Net(), [x, w], way)), Net(), [x, w])


def test_integers_of_torch_export():
    from torch.ao.quantization.fx import _decomposed  # noqa: F401  # defines the operators

    q = torch.ops.quantized_decomposed

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("w", torch.randint(-127, 127, (8, 3, 3, 3), dtype=torch.int8))
            self.register_buffer("s", torch.rand(8) * 0.02 + 0.01)
            self.register_buffer("z", torch.zeros(8, dtype=torch.int64))

        def forward(self, x):
            x = q.quantize_per_tensor(x, 0.03, 5, -128, 127, torch.int8)
            x = q.dequantize_per_tensor(x, 0.03, 5, -128, 127, torch.int8)
            w = q.dequantize_per_channel(self.w, self.s, self.z, 0, -127, 127, torch.int8)
            y = F.relu(F.conv2d(x, w, padding=1))
            y = q.quantize_per_tensor(y, 0.05, -10, -64, 63, torch.int8)
            return q.dequantize_per_tensor(y, 0.05, -10, -64, 63, torch.int8)

    net = Net().eval()
    file = io.BytesIO()
    torch.export.save(torch.export.export(net, (X,)), file)
    graph = load_torch(file.getvalue())
    weight = next(n.inputs[1].producer for n in graph.nodes() if n.op == "conv")
    np.testing.assert_array_equal(weight.inputs[0].data, net.w.numpy())
    agrees(graph, net, X, 0.05)
