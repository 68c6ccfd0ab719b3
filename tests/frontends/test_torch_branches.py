"""Live modules whose Python code reads values: both branches are compiled, or the line is named."""

from __future__ import annotations

import inspect
import re
import warnings

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (extra 'torch')")

import torch
from torch import nn

import intaglio
from intaglio.errors import BadInput, Unsupported
from intaglio.frontends.torch.value_reads import find_value_reads

X = torch.arange(6.0).reshape(2, 3) + 1


# ---- compiled: both branches, or a number that is computed at run time ---------------------------
class Branch(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x * 2
        return x - 100


class Nested(nn.Module):
    def forward(self, x):
        y = x
        if bool(x.sum() > 0) and not bool(x.max() > 4):
            y = x * 2
        elif float(x.min()) < -5:
            y = x + 7
        return y


class Condition(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 100, (x,))


class Item(nn.Module):
    def forward(self, x):
        return x / (x.abs().max().item() + 1)


class Items(nn.Module):
    def forward(self, x):
        first = x[0].tolist()
        return x * first[0] + first[2]


class Inner(nn.Module):
    """The branch is in a submodule."""

    def __init__(self):
        super().__init__()
        self.branch = Branch()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(self.branch(x))


@pytest.mark.parametrize("kind", [Branch, Nested, Condition, Item, Items, Inner])
def test_both_branches(kind):
    module = kind().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = intaglio.load(module, inputs=(X,))
    (name,) = [v.name for v in graph.inputs]
    with intaglio.open(intaglio.compile(graph)) as session:
        for x in (X, -X, X * 0, X / 10, -X * 3):
            want = module(x).detach().numpy()
            (got,) = session.run({name: x.numpy()}).values()
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


# ---- refused with the line -----------------------------------------------------------------------
class While(nn.Module):
    def forward(self, x):
        while bool(x.sum() > 1):  # here
            x = x / 2
        return x


class Numpy(nn.Module):
    def forward(self, x):
        return x * float(np.max(x.numpy()))  # here


class Array(nn.Module):
    def forward(self, x):
        return x * torch.from_numpy(np.asarray(x) * 2)  # here


class Index(nn.Module):
    def forward(self, x):
        n = int(x.argmax())  # here
        return x.reshape(-1)[n : n + 1]


class Ints(nn.Module):
    def forward(self, x):
        counts = [int(v) for v in x[0]]  # here
        return torch.cat([x] * counts[0])


class Equal(nn.Module):
    def forward(self, x):
        if torch.equal(x, x.abs()):  # here
            return x * 2
        return x


class Contains(nn.Module):
    def forward(self, x):
        return x * 2 if 3.0 in x else x  # here


class Caught(nn.Module):
    """torch.export raises an exception at the branch, which the module catches."""

    def forward(self, x):
        try:
            if x.sum() > 0:  # here
                return x * 2
        except Exception:
            pass
        return x - 100


class Written(nn.Module):
    """The value goes through a buffer that is written in place."""

    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(3))

    def forward(self, x):
        self.last[0] = x[0, 0]
        return [x, x * 2][int(self.last[0])]  # here


class Count(nn.Module):
    """The shape of a tensor depends on values."""

    def forward(self, x):
        n = torch.nonzero(x).shape[0]
        if n > 3:  # here
            return x
        return x * 2


REFUSED = [While, Numpy, Array, Index, Ints, Equal, Contains, Caught, Written, Count]


@pytest.mark.parametrize("kind", REFUSED)
def test_a_line_that_reads_values_is_named(kind):
    lines, first = inspect.getsourcelines(kind)
    line = first + next(i for i, text in enumerate(lines) if "# here" in text)
    words = re.escape(f"{__file__}:{line} in ") + r".*depends on the inputs.*cannot follow it"
    x = torch.tensor([[1.0, 2, 3], [4, 5, 6]])
    with pytest.raises(Unsupported, match=words) as e:
        intaglio.load(kind(), inputs=(x,))
    assert "\n" not in str(e.value)


# ---- traced: the module reads only shapes --------------------------------------------------------
class Shapes(nn.Module):
    """torch.export refuses it; only shapes and parameters decide its branches."""

    def __init__(self):
        super().__init__()
        self.register_buffer("flag", torch.ones(1))

    def forward(self, x):
        if type(x) is not torch.Tensor:  # a FakeTensor of torch.export
            raise TypeError("a plain tensor is needed")
        if x.shape[0] > 1 and bool(self.flag > 0):
            x = x * torch.zeros_like(x).add(2).shape[1]
        return {"doubled": x * 2, "sum": x.sum(1)}


def test_a_trace_is_never_silent():
    with pytest.warns(UserWarning, match=r"was traced, because torch\.export failed: TypeError"):
        graph = intaglio.load(Shapes(), inputs=(X,))
    assert graph.output_names == ["doubled", "sum"]
    got = intaglio.interpret(graph, {graph.inputs[0].name: -X.numpy()})
    np.testing.assert_allclose(got["doubled"], -6 * X.numpy())


def test_doubts_of_the_tracer_are_told():
    class InPlace(nn.Module):
        def forward(self, x):
            if type(x) is not torch.Tensor:
                raise TypeError("a plain tensor is needed")
            y = x.expand(2, 2, 3).clone()
            z = y[0]
            y[0] += 1
            return z + y[0]

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        graph = intaglio.load(InPlace(), inputs=(X,))
    assert any("was traced" in str(w.message) for w in said)
    (got,) = intaglio.interpret(graph, {graph.inputs[0].name: X.numpy()}).values()
    np.testing.assert_allclose(got, 2 * X.numpy() + 2)


def test_warnings_of_the_module_are_not_hidden():
    class Warns(nn.Module):
        def forward(self, x):
            warnings.warn("too bright", stacklevel=1)
            return x * 2

    with pytest.warns(UserWarning, match="too bright"):
        intaglio.load(Warns(), inputs=(X,))


# ---- reads ---------------------------------------------------------------------------------------
def test_values_of_parameters_and_shapes_are_no_reads():
    module = Shapes()
    found = find_value_reads(module, (X,), {})
    assert not found.values
    assert not found.shapes
    found = find_value_reads(Branch(), (), {"x": X})
    assert [p.code for p in found.values] == ["if x.sum() > 0:"]


def test_the_module_is_left_as_it_was():
    module = Written().train()
    with pytest.raises(Unsupported):
        intaglio.load(module, inputs=(X,))
    assert module.training
    assert not module.last.any()
    assert "forward" not in vars(module)


def test_examples_that_the_module_refuses():
    with pytest.raises(BadInput, match="fails on its example inputs: RuntimeError"):
        intaglio.load(nn.Linear(4, 2), inputs=(X,))
