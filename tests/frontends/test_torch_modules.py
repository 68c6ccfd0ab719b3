"""PyTorch modules: control flow, open shapes, state, live modules, unsupported code."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (extra 'torch')")

import torch
from tests.frontends.test_torch import Call, M, R, X, compare, saved
from torch import nn

import intaglio
from intaglio.errors import BadInput, Unsupported
from intaglio.frontends.options import ImportOptions
from intaglio.frontends.torch import load_torch


class Loops(nn.Module):
    """Branches and loops on constants, methods, lists and an optional argument."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])
        self.norm = nn.LayerNorm(6)
        self.deep: bool = True

    def again(self, x: torch.Tensor, times: int) -> torch.Tensor:
        i = 0
        while i < times:
            x = torch.tanh(x)
            i += 1
        return x

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None):
        kept = []
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if self.deep and i > 0:
                kept.append(x)
        if mask is not None:
            x = x * mask
        if x.dim() == 2:
            x = self.again(self.norm(x), x.size(1) // 2)
        else:
            raise ValueError("rank 2 is needed")
        total = torch.stack(kept).sum(0)
        return x, total, {"n": x[:, : x.shape[1] // 2]}


def test_scripted_control_flow():
    module = Loops().eval()
    data = saved(module, [], "script")
    graph = load_torch(data, ImportOptions(shapes={"x": (4, 6)}))
    compare(graph, module, [M])
    both = load_torch(data, ImportOptions(shapes={"x": (4, 6), "mask": (6,)}))
    compare(both, module, [M, R(6)])
    with pytest.raises(Unsupported, match="refuses its inputs"):
        load_torch(data, ImportOptions(shapes={"x": (4, 6, 6)}))


def test_frozen_modules():
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()).eval()
    file = io.BytesIO()
    torch.jit.save(torch.jit.freeze(torch.jit.script(module)), file)
    graph = load_torch(file.getvalue(), ImportOptions(shapes={"input": tuple(X.shape)}))
    compare(graph, module, [X])


class Late(nn.Module):
    """A branch that is known only at run time."""

    def forward(self, x: torch.Tensor):
        if bool(x.sum() > 0):  # noqa: SIM108  # TorchScript tells the forms apart
            y = x * 2
        else:
            y = x - 1
        return y


@pytest.mark.parametrize("sign", [1, -1])
def test_branch_at_run_time(sign):
    module = Late().eval()
    graph = load_torch(saved(module, [], "script"), ImportOptions(shapes={"x": (4, 6)}))
    compare(graph, module, [M.abs() * sign])


def test_loop_of_unknown_length_is_refused():
    class Endless(nn.Module):
        def forward(self, x: torch.Tensor):
            while bool(x.sum() > 1):
                x = x / 2
            return x

    with pytest.raises(Unsupported, match="known only at run time"):
        load_torch(saved(Endless(), [], "script"), ImportOptions(shapes={"x": (3,)}))


def test_every_unknown_operator_is_told_at_once():
    def f(x):
        return torch.special.i0e(x) + torch.special.i0e(x * 2) + torch.lgamma(x) + torch.relu(x)

    for way in ("export", "trace"):
        with pytest.raises(Unsupported, match=r"special_i0e \(2x\), lgamma \(1x\)"):
            load_torch(saved(Call(f), [M], way))


def test_open_dimensions():
    module = nn.Linear(6, 3).eval()
    batch = torch.export.Dim("batch", max=64)
    program = torch.export.export(module, (M,), dynamic_shapes={"input": {0: batch}})
    file = io.BytesIO()
    torch.export.save(program, file)
    with pytest.raises(BadInput, match="is open; give it"):
        load_torch(file.getvalue())
    graph = load_torch(file.getvalue(), ImportOptions(shapes={"input": (7, 6)}))
    compare(graph, module, [R(7, 6)])


class Sizes(nn.Module):
    def forward(self, x):
        b, n = x.shape
        return x.view(b, 2, n // 2).transpose(1, 2).reshape(b, -1) * b


def test_symbols_in_shapes():
    batch = torch.export.Dim("b", min=2, max=64)
    program = torch.export.export(Sizes(), (M,), dynamic_shapes={"x": {0: batch}})
    file = io.BytesIO()
    torch.export.save(program, file)
    graph = load_torch(file.getvalue(), ImportOptions(shapes={"x": (8, 6)}))
    compare(graph, Sizes(), [R(8, 6)])


def test_live_modules():
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    graph = intaglio.load(module, inputs=(X,))
    assert module.training, "the module's mode is left as it was"
    compare(graph, module.eval(), [X])
    with intaglio.open(intaglio.compile(module, inputs=[X.numpy()])) as session:
        name = next(iter(graph.inputs)).name
        assert next(iter(session.run({name: X.numpy()}).values())).shape == (2, 4, 6, 6)
    with pytest.raises(BadInput, match="needs examples"):
        intaglio.load(module)
    scripted = torch.jit.script(module)
    compare(intaglio.load(scripted, shapes={"input": tuple(X.shape)}), module, [X])


def test_files_are_read_without_torch(tmp_path):
    path = tmp_path / "m.pt"
    path.write_bytes(saved(nn.Linear(6, 3), [M], "trace"))
    code = f"import sys, intaglio; intaglio.load({str(path)!r}); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_inner_tensors_can_be_asked_for():
    module = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).eval()
    data = saved(module, [M], "export")
    graph = load_torch(data, ImportOptions(outputs=["relu"]))
    compare(graph, module[:2], [M])
    rest = load_torch(data, ImportOptions(inputs=["relu"]))
    compare(rest, module[2:], [R(4, 5)])
    with pytest.raises(BadInput, match="no tensor is called 'nothing'"):
        load_torch(data, ImportOptions(outputs=["nothing"]))


def test_weights_alone_are_explained(tmp_path):
    module = nn.Linear(3, 2)
    for name, what, old in (
        ("w.pth", module.state_dict(), False),
        ("m.pth", module, False),
        ("c.pth", {"model": module.state_dict(), "epoch": 3}, False),
        ("o.pth", module.state_dict(), True),
    ):
        path = tmp_path / name
        torch.save(what, path, _use_new_zipfile_serialization=not old)
        with pytest.raises(Unsupported, match=r"no network.*torch\.jit\.trace"):
            intaglio.load(path)


class Keeps(nn.Module):
    """A sum over all calls, in an attribute, and a count, written in place."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(6))
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor):
        self.seen = self.seen + x.sum(0)
        self.count.add_(1.0)
        return x + self.seen / self.count


@pytest.mark.parametrize("way", ["script", "trace", "export", "decomposed"])
def test_state(way):
    """State causes a warning, or the session carries it over several calls."""
    data = saved(Keeps(), [M], way)
    shapes = {"x": (4, 6)}
    if way != "trace":  # a trace forgets that an attribute was set
        with pytest.warns(UserWarning, match="keeps state between calls"):
            load_torch(data, ImportOptions(shapes=shapes))
    graph = load_torch(data, ImportOptions(shapes=shapes, state=True))
    names = [v.name for v in graph.inputs if v.name != "x"]
    assert "state.count" in names
    assert set(graph.state) == set(names)
    module = Keeps()
    with intaglio.open(intaglio.compile(graph)) as session:
        assert (list(session.inputs), list(session.outputs)) == (["x"], ["output"])
        if way == "trace":  # export ran the module, so that a state is stored
            session.state = {n: np.zeros_like(a) for n, a in session.state.items()}
        for _ in range(3 if way != "trace" else 1):
            x = R(4, 6)
            want = module(x).numpy()
            got = session.run({"x": x.numpy()})["output"]
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_training_mode_is_refused():
    module = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5)).train()
    with pytest.raises(Unsupported, match=r"model\.eval\(\)"):
        load_torch(saved(module, [M], "trace"))
