"""The module: parameters made of a graph's constants, and the walk over its nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from intaglio import dtypes
from intaglio.batches import rebatched
from intaglio.compress.twin import scales
from intaglio.compress.twin.float_ops import FUNCTIONS
from intaglio.compress.twin.integer_nodes import INTEGER, clamp_bounds
from intaglio.compress.twin.on_chip import OnChip, before_softmax
from intaglio.compress.twin.rounding import METHODS, Rounding, Weights, binary_weights, unit_of
from intaglio.errors import BadInput, Unsupported
from intaglio.ir import Array, Graph, Node, Value
from intaglio.ops.registry import REGISTRY, evaluate_node

# op -> operands that hold parameters
TRAINED = {
    "conv": (1, 2), "conv_transpose": (1, 2), "matmul": (1,), "gemm": (1, 2), "mul": (0, 1),
    "add": (0, 1), "sub": (1,), "layer_norm": (1, 2), "batch_norm": (1, 2), "prelu": (1,),
    "group_norm": (1, 2), "instance_norm": (1, 2), "rms_norm": (1,),
}  # fmt: skip
PRODUCTS = ("conv", "conv_transpose", "matmul", "gemm")
MOMENTUM = 0.1  # of the statistics of batch norms in training
Pairs = list[tuple[Node, Node]]  # nodes for a batch, and the nodes of the graph


class Twin(nn.Module):
    """A differentiable copy of a graph. `graph` stays as it is; `to_graph` makes a new one."""

    def __init__(self, graph: Graph, method: str = "lsq", binary: Collection[str] = ()):
        super().__init__()
        if method not in METHODS:
            raise BadInput(f"method is {method!r}; known are {', '.join(METHODS)}")
        if graph.state or any(n.bodies() for n in graph.nodes()):
            raise Unsupported(
                "training needs a graph without state and control flow; this one has them; "
                "cut the model with outputs="
            )
        self.source, self.method = graph.copy(), method
        self.binary = frozenset(binary)  # names of weights that are +1 or -1 times a factor
        self.slots: dict[tuple[Node, int], Rounding] = {}
        self.of_weights: dict[tuple[Value, Value], Weights] = {}
        self.of_bias: dict[Node, nn.Parameter] = {}
        self.constants: dict[Value, nn.Parameter] = {}
        self.units: dict[Value | Node, float] = {}  # parameters are in these units
        self.bounds: dict[Node, tuple[float, float]] = {}  # of clamps behind a rounding
        self.roundings, self.layers = nn.ModuleList(), nn.ModuleList()
        self.vectors = nn.ParameterList()
        self._plans: dict[int, tuple[Graph, Pairs]] = {}
        self._fixed: dict[tuple[Value, torch.device], Tensor] = {}
        self.statistics: dict[Value, Tensor] = {}  # running ones of batch norms
        self.held: dict[Value, Tensor] = {}  # masks of float weights
        self._frozen: dict[Value, Tensor] = {}  # values that no longer change
        self._lowered: dict[Node, Graph | None] = {}
        self.observed: dict[Rounding, list[Tensor]] | None = None  # filled while it is a dict
        self.on_chip: OnChip | None = None  # of a chip that rounds in its own way
        self._read_scales()
        self._read_products()
        self._read_statistics()
        self._read_floats()

    @property
    def device(self) -> torch.device:
        """Where its parameters are."""
        return next((p.device for p in self.parameters()), torch.device("cpu"))

    @property
    def recordable(self) -> bool:
        """Whether a step of training can be recorded: no part of it reads numbers back."""
        return self.method != "minmax"

    # ---- reading the graph ------------------------------------------------------------------
    def _read_scales(self) -> None:
        for g in scales.groups(self.source):
            if g.fixed == scales.APART:  # integers that each reader takes in its own way
                for holder in g.holders:
                    self._add(scales.Group(g.tensors, [holder], g.fixed))
            elif g.holders:
                self._add(g)
        self.bounds = clamp_bounds(self.source)

    def _add(self, g: scales.Group) -> None:
        r = Rounding(g.scale, g.zero, g.levels, self.method, not g.fixed, g.name)
        self.roundings.append(r)
        self.slots.update(dict.fromkeys(g.slots(), r))

    def _read_products(self) -> None:
        for n in scales.products(self.source):
            w, ws, wz = n.inputs[3:6]
            assert w is not None
            assert ws is not None
            assert wz is not None
            if (w, ws) not in self.of_weights:
                layer = Weights(
                    tensor(w), tensor(ws).reshape(-1), tensor(wz).reshape(-1),
                    dtypes.limits(w.dtype), self.method,
                    axis=0 if n.op == "qlinear_conv" else w.type.rank - 1,
                )  # fmt: skip
                self.of_weights[w, ws] = layer
                self.layers.append(layer)
            b = n.inputs[8] if n.op == "qlinear_conv" else None
            if b is not None and b.data is not None:
                step = self.slots[n, 1].scale.double() * self.of_weights[w, ws].scale.double()
                real = torch.from_numpy(np.asarray(b.data, np.float64)) * step
                self._add_bias(n, real.float(), self.of_weights[w, ws].unit)

    def _add_bias(self, n: Node, real: Tensor, other: float) -> None:
        self.units[n] = unit_of(real) if real.any() else other
        self.of_bias[n] = nn.Parameter(real / self.units[n])
        self.vectors.append(self.of_bias[n])

    def bias(self, n: Node) -> Tensor | None:
        """The real bias of an integer product, in f64."""
        p = self.of_bias.get(n)
        return None if p is None else p.double() * self.units[n]

    def value(self, v: Value) -> Tensor:
        """A trained float constant."""
        p: Tensor = self.constants[v]
        if self.units[v] != 1.0:
            p = p * self.units[v]
        if v in self.held:
            self.held[v] = self.held[v].to(p.device)
            p = p * self.held[v]
        return binary_weights(p) if v.name in self.binary else p

    def _read_statistics(self) -> None:
        for n in self.source.nodes():
            for v in n.inputs[3:5] if n.op == "batch_norm" else ():
                if v is not None and v.data is not None and v not in self.statistics:
                    name = f"statistics_{len(self.statistics)}"
                    self.register_buffer(name, tensor(v))
                    self.statistics[v] = getattr(self, name)

    def _read_floats(self) -> None:
        normed = bool(self.statistics)  # weights before batch norms have no size of their own
        for n in self.source.nodes():
            for i in TRAINED.get(n.op, ()):
                v = n.inputs[i] if i < len(n.inputs) else None
                if v is None or v.data is None or v.dtype != "f32" or v in self.constants:
                    continue
                if v.type.size > 1 or n.op not in ("mul", "add", "sub"):
                    real = tensor(v)
                    self.units[v] = unit_of(real) if n.op in PRODUCTS and not normed else 1.0
                    self.constants[v] = nn.Parameter(real / self.units[v])
                    self.vectors.append(self.constants[v])

    # ---- running ----------------------------------------------------------------------------
    def forward(self, *inputs: Tensor) -> Any:
        """The outputs for a batch: a tensor, or a tuple of them."""
        if len(inputs) != len(self.source.inputs):
            names = ", ".join(v.name for v in self.source.inputs)
            raise BadInput(f"{len(inputs)} inputs are given; the model has {names}")
        env = self.run(inputs)
        return env[0] if len(env) == 1 else tuple(env)

    def scores(self, *inputs: Tensor) -> Tensor:
        """The first output before a final softmax, which a loss applies itself."""
        return self.run(inputs, bare=True)[0]

    def run(
        self,
        inputs: Sequence[Tensor],
        exact: bool = False,
        keep: dict[str, Tensor] | None = None,
        bare: bool = False,
    ) -> list[Tensor]:
        """The outputs. `exact`: bytes as the interpreter has them, without gradients.

        `keep` receives every named tensor; `bare` leaves out softmaxes that make an output.
        """
        graph, pairs = self._plan(len(inputs[0]) if inputs[0].dim() else 1)
        env: dict[Value, Tensor] = dict(zip(graph.inputs, inputs, strict=True))
        if self.layers and inputs[0].device.type == "cpu":  # floats have no bytes to keep
            exact = exact or not (self.training or torch.is_grad_enabled())
        if exact and self.on_chip is not None and keep is None and self.observed is None:
            return self.on_chip.run(self, inputs, bare)
        outputs = [before_softmax(v) for v in graph.outputs] if bare else graph.outputs
        for new, old in pairs:
            if bare and new.op == "softmax" and new.outputs[0] in graph.outputs:
                continue
            self._node(new, old, env, exact)
            if keep is not None:
                keep.update({v.name: env[v] for v in new.outputs if v.name})
        return [self._get(v, env) for v in outputs]

    def _plan(self, batch: int) -> tuple[Graph, Pairs]:
        if batch not in self._plans:
            usual = self.source.inputs[0].shape[:1]
            now: dict[Value, Value] = {}
            graph = self.source if usual == (batch,) else rebatched(self.source, batch, now)
            old = {now.get(v, v): n for n in self.source.nodes() for v in n.outputs}
            pairs = [(n, old.get(n.outputs[0], n)) for n in graph.nodes()]
            self._plans[batch] = graph, pairs
        return self._plans[batch]

    def _get(self, v: Value, env: Mapping[Value, Tensor]) -> Tensor:
        if v in env:
            return env[v]
        if v in self._frozen:
            return self._frozen[v]
        if v in self.constants:
            return self.value(v)
        if v in self.statistics:
            return self.statistics[v]
        key = v, self.device
        if key not in self._fixed:
            self._fixed[key] = tensor(v).to(key[1])
        return self._fixed[key]

    def _apply(self, fn: Any, recurse: bool = True) -> Twin:
        """Moves to another device: statistics are found under their new tensors."""
        super()._apply(fn, recurse)
        self._frozen = {}
        self.statistics = {
            v: getattr(self, f"statistics_{i}") for i, v in enumerate(self.statistics)
        }
        return self

    def _node(self, new: Node, old: Node, env: dict[Value, Tensor], exact: bool) -> None:
        given = [None if v is None else self._get(v, env) for v in new.inputs]
        if (
            old.op in INTEGER
            and (made := INTEGER[old.op](self, old, new, given, exact)) is not None
        ):
            env[new.outputs[0]] = made
        elif exact and not _moves(new):
            self._interpreted(new, given, env)
        else:
            self._differentiable(new, given, env, exact)

    def _interpreted(self, n: Node, given: list[Tensor | None], env: dict[Value, Tensor]) -> None:
        """Run the interpreter's own body: float results have its bytes."""
        arrays = [
            None if t is None or v is None else as_array(t, v.dtype)
            for t, v in zip(given, n.inputs, strict=True)
        ]
        for v, a in zip(n.outputs, evaluate_node(n, arrays), strict=True):
            env[v] = from_array(a).to(self.device)

    def _differentiable(
        self, n: Node, given: list[Tensor | None], env: dict[Value, Tensor], exact: bool
    ) -> None:
        if n.op == "batch_norm" and self.training:
            env[n.outputs[0]] = self._normalized(n, given)
            return
        function = FUNCTIONS.get(n.op)
        if function is not None:
            while given and given[-1] is None:
                given = given[:-1]
            env[n.outputs[0]] = function(*given, **n.attrs)
        elif (lower := self._expanded(n)) is not None:
            inside = dict(zip(lower.inputs, (t for t in given if t is not None), strict=True))
            for m in lower.nodes():
                self._node(m, m, inside, exact)
            for v, w in zip(n.outputs, lower.outputs, strict=True):
                env[v] = self._get(w, inside)
        elif any(t is not None and t.requires_grad for t in given):
            raise Unsupported(
                f"training through {n.op} '{n.origin or n.outputs[0].name}' is not supported; "
                "cut the model before it with outputs=, or leave these layers out"
            )
        else:
            self._interpreted(n, given, env)

    def _expanded(self, n: Node) -> Graph | None:
        """The node in simpler ops, as a graph of its operands."""
        if n not in self._lowered:
            lower, graph = REGISTRY[n.op].lower, None
            if lower is not None:
                free = [None if v is None else Value(v.type, v.name) for v in n.inputs]
                if (found := lower(*free, **n.attrs)) is not None:
                    results = found if isinstance(found, list) else [found]
                    graph = Graph([v for v in free if v is not None], results)
            self._lowered[n] = graph
        return self._lowered[n]

    def _normalized(self, n: Node, given: list[Tensor | None]) -> Tensor:
        """Batch norm in training: statistics of the batch, and running ones for later."""
        x, scale, bias, mean, var = given[:5]
        assert x is not None
        assert mean is not None
        assert var is not None
        result: Tensor = nn.functional.batch_norm(
            x, mean.detach(), var.detach(), scale, bias, True, MOMENTUM, n.attrs["epsilon"]
        )
        return result

    @torch.no_grad()
    def freeze(self, dtype: torch.dtype) -> None:
        """Keep the float constants as they are now, in this type, until the twin moves."""
        if not self._frozen:
            self._frozen = {v: self.value(v).to(dtype) for v in self.constants}
            if self.device.type == "cuda":
                torch.cuda.synchronize()  # other streams read them

    @torch.no_grad()
    def hold_zeros(self) -> None:
        """Keep weights of products that are 0 now at 0."""
        for layer in self.layers:
            layer.keep = (layer.weight != 0).float()
        for n in self.source.nodes():
            w = n.inputs[1] if n.op in PRODUCTS and len(n.inputs) > 1 else None
            if w is not None and w in self.constants and w not in self.held:
                self.held[w] = (self.constants[w] != 0).float()

    def real(self, name: str, t: Tensor) -> Tensor:
        """A kept tensor as real numbers: integers times their scale."""
        r = self._roundings_by_name.get(name)
        return t if r is None else (t - r.zero) * r.scale

    @cached_property
    def _roundings_by_name(self) -> dict[str, Rounding]:
        found: dict[str, Rounding] = {}
        for n in self.source.nodes():
            x, y = n.inputs[0], n.outputs[0]
            r = self.slots.get((n, scales.MAKES[n.op][0])) if n.op in scales.MAKES else None
            if r is None and n.op in scales.MOVES and x is not None:
                r = found.get(x.name)
            if r is not None and y.name:
                found[y.name] = r
        return found

    # ---- for training loops -------------------------------------------------------------------
    def free_roundings(self) -> Iterator[Rounding]:
        """The activations whose scales may be trained."""
        for r in self.roundings:
            if isinstance(r, Rounding) and r.free:
                yield r

    def parameter_groups(self, rate: float, decay: float = 0.0) -> list[dict[str, Any]]:
        """Groups for an optimiser: weights decay; biases and scales do not."""
        small = {p for r in self.roundings for p in r.parameters()}
        small |= {layer.ratio for layer in self.layers if isinstance(layer, Weights)}
        rest = [p for p in self.parameters() if p.requires_grad and p not in small]
        wide = [p for p in rest if p.dim() > 1]
        flat = [p for p in rest if p.dim() <= 1]
        steps = [p for p in small if p.requires_grad]
        return [
            {"params": wide, "lr": rate, "weight_decay": decay},
            {"params": flat, "lr": rate, "weight_decay": 0.0},
            {"params": steps, "lr": rate, "weight_decay": 0.0},
        ]

    def constrain(self) -> None:
        """Call it after every step: scales stay positive."""
        for m in (*self.roundings, *self.layers):
            m.constrain()


def _moves(n: Node) -> bool:
    """Does it move or select bytes, in torch exactly as in numpy?"""
    return n.op in scales.MOVES and n.op in FUNCTIONS


def tensor(v: Value) -> Tensor:
    """A constant as a tensor: floats and small integers in f32, indices in their type."""
    assert v.data is not None
    return from_array(v.data)


def from_array(a: Array) -> Tensor:
    kind = dtypes.TABLE[dtypes.name_of(a.dtype)]
    if kind.kind == "b" or kind.bits > 16 or kind.name in ("f16",):
        return torch.from_numpy(np.array(a, order="C")).reshape(a.shape)
    return torch.from_numpy(np.array(a, np.float32, order="C")).reshape(a.shape)


def as_array(t: Tensor, dtype: str) -> Array:
    """A tensor as the numpy array of an element type."""
    return t.detach().cpu().numpy().astype(dtypes.numpy_of(dtype))
