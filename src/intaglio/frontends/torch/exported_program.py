"""torch.export programs (.pt2): a JSON list of operators."""

from __future__ import annotations

import json
from typing import Any

from intaglio import ops
from intaglio.errors import BadFile, BadInput, Unsupported, option
from intaglio.frontends.options import ImportOptions, refuse_unknown_dims
from intaglio.frontends.torch.archive import Archive
from intaglio.frontends.torch.exported_json import (
    constant_value,
    element_type,
    nested_outputs,
    number,
    only_alternative,
    output_names,
    symbol_of,
)
from intaglio.frontends.torch.exported_weights import LEGACY_PROGRAM, ExportedWeights
from intaglio.frontends.torch.importer import as_dtype
from intaglio.frontends.torch.inputs import (
    Inputs,
    build_graph,
    named_results,
    state_results,
    warn_of_state,
)
from intaglio.frontends.torch.mutable_tensor import MutableTensor
from intaglio.frontends.torch.program import UNKNOWN, Program
from intaglio.frontends.torch.scalars import Device
from intaglio.frontends.torch.tensors import EXPORTED
from intaglio.ir import Array, Graph, Value

_PYTHON = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "floordiv": "floordiv",
    "truediv": "truediv",
    "mod": "mod",
    "eq": "eq",
    "ne": "ne",
    "lt": "lt",
    "le": "le",
    "gt": "gt",
    "ge": "ge",
    "neg": "neg",
    "pow": "pow",
    "getitem": "getitem",
    "and_": "and_",
    "or_": "or_",
}
_INLINED = {"wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4, "wrap": 0}


def is_exported(archive: Archive) -> bool:
    return LEGACY_PROGRAM in archive or _model(archive) is not None


def _model(archive: Archive) -> str | None:
    found = [n for n in archive.names if n.startswith("models/") and n.endswith(".json")]
    return found[0] if found else None


def load_exported(archive: Archive, options: ImportOptions) -> Graph:
    """The graph of a .pt2 file."""
    name = _model(archive) or LEGACY_PROGRAM
    try:
        program = json.loads(archive.text(name))
    except (ValueError, RecursionError) as e:
        raise BadFile(f"{archive.what}: '{name}' is damaged ({str(e)[:120]})") from None
    if not isinstance(program, dict) or "graph_module" not in program:
        raise BadFile(f"{archive.what}: '{name}' is not a program; it is damaged")
    return _ExportedProgram(archive, name, program, options).graph()


class _ExportedProgram:
    def __init__(self, archive: Archive, name: str, stored: dict[str, Any], options: ImportOptions):
        self.archive, self.stored, self.what = archive, stored, archive.what
        self.name = name.removeprefix("models/").removesuffix(".json")
        self.module = stored["graph_module"]
        self.program = Program()
        self.inputs = Inputs(options, self.program)
        self.symbols: dict[str, int] = dict(options.dims)
        self.open: dict[str, str] = {}
        self.buffers: dict[str, tuple[MutableTensor, Value]] = {}  # with their values before a call
        self.after: dict[str, Any] = {}  # buffers that a call changes, with their new values
        self.weights = ExportedWeights(archive, self.name)
        self.exposed: set[str] = set()  # buffers that are inputs and outputs of the graph
        self.stored_state: dict[str, Array | None] = {}  # initial values of exposed buffers

    def graph(self) -> Graph:
        graph, signature = self.module["graph"], self.module["signature"]
        env: dict[str, Any] = {}
        self._bind(graph, signature)
        for spec in signature["input_specs"]:
            self._input(spec, graph, env)
        self._nodes(graph, env)
        self.program.refuse_unknown()
        made = []
        for spec in signature["output_specs"]:
            kind, body = only_alternative(spec)
            if kind == "user_output":
                made.append(self._argument(body["arg"], env))
            elif kind == "buffer_mutation":
                self.after[str(body["buffer_name"])] = self._look(body["arg"]["name"], env)
        for name, (cell, before) in self.buffers.items():
            if cell.held is not before:  # overwritten in place
                self.after.setdefault(name, cell)
        if self.after and not self.inputs.options.state:
            warn_of_state(list(self.after))
        elif self.after and not self.exposed:
            again = _ExportedProgram(self.archive, self.name, self.stored, self.inputs.options)
            again.exposed = set(self.after)
            return again.graph()
        pairs = {
            n: (before.type, self.after.get(n, cell))
            for n, (cell, before) in self.buffers.items()
            if n in self.exposed
        }
        version = str(self.stored.get("torch_version", ""))[:40]
        metadata = {"producer": f"torch.export {version}".strip()}
        results = named_results(nested_outputs(self.module, made))
        outputs = results + state_results(pairs)
        state = {f"state.{n}": self.stored_state.get(n) for n in pairs}
        return build_graph(self.inputs, outputs, self.name, metadata, state)

    # ---- shapes ----
    def _bind(self, graph: dict[str, Any], signature: dict[str, Any]) -> None:
        """Bind the symbols of dimensions from the options `dims` and `shapes`."""
        symbols: set[str] = set()
        for spec in signature["input_specs"]:
            kind, body = only_alternative(spec)
            if kind != "user_input" or "as_tensor" not in body["arg"]:
                continue
            name = body["arg"]["as_tensor"]["name"]
            sizes = graph["tensor_values"][name]["sizes"]
            given = self.inputs.options.shapes.get(name)
            if given is not None and len(given) != len(sizes):
                raise BadInput(
                    f"torch: input '{name}' has rank {len(sizes)}; a shape with {len(given)} axes "
                    "is given"
                )
            for i, size in enumerate(sizes):
                symbol = symbol_of(size)
                if symbol.isidentifier():
                    symbols.add(symbol)
                    if given is not None:
                        self.symbols[symbol] = int(given[i])
                    elif symbol not in self.symbols:
                        self.open[symbol] = name
        refuse_unknown_dims("torch", self.inputs.options, symbols)

    def _sizes(self, name: str, meta: dict[str, Any]) -> list[int]:
        results = []
        for size in meta["sizes"]:
            if "as_int" in size:
                results.append(int(size["as_int"]))
                continue
            symbol = symbol_of(size)
            if symbol not in self.symbols:
                raise BadInput(
                    f"torch: dimension '{symbol[:40]}' of input '{name}' is open; give "
                    f"it with {option('dims', {symbol[:40]: 1})}, or the whole shape with "
                    f"{option('shapes')}"
                )
            results.append(self.symbols[symbol])
        return results

    # ---- inputs ----
    def _input(self, spec: dict[str, Any], graph: dict[str, Any], env: dict[str, Any]) -> None:
        kind, body = only_alternative(spec)
        if kind == "user_input":
            arg = body["arg"]
            if "as_tensor" in arg:
                name = str(arg["as_tensor"]["name"])
                meta = graph["tensor_values"][name]
                env[name] = self.inputs.tensor(name, self._sizes(name, meta), element_type(meta))
            elif "as_sym_int" in arg and "as_name" in arg["as_sym_int"]:
                name = str(arg["as_sym_int"]["as_name"])
                env[name] = self.inputs._number(name, "int", None, None)
        elif kind in ("parameter", "buffer", "tensor_constant"):
            name = str(body[f"{kind}_name"])
            cell = self.weights.read(kind, name)
            held = cell.held
            if name in self.exposed and isinstance(held, Value):
                self.stored_state[name] = held.data
                cell = self.inputs.tensor(f"state.{name}", held.shape, held.dtype)
            if kind == "buffer" and isinstance(cell.held, Value):
                self.buffers[name] = (cell, cell.held)
            env[body["arg"]["name"]] = cell
        elif kind == "constant_input":
            env[str(body["name"])] = constant_value(body["value"])
        else:
            raise Unsupported(f"torch: the program takes a {kind}, which is not supported")

    # ---- operators ----
    def _nodes(self, graph: dict[str, Any], env: dict[str, Any]) -> None:
        for node in graph["nodes"]:
            names = output_names(node["outputs"])
            result = self._call(node, env, str(node.get("name") or (names or ["?"])[0]))
            self._bound(node["outputs"], result, env)

    def _call(self, node: dict[str, Any], env: dict[str, Any], label: str) -> Any:
        target = str(node["target"])
        given = node["inputs"]
        if target.startswith("torch.ops.higher_order."):
            return self._higher(target.rpartition(".")[2], given, env, label)
        args = [self._argument(g["arg"], env) for g in given if g.get("kind") != 2]
        kwargs = {
            str(g["name"]): self._argument(g["arg"], env) for g in given if g.get("kind") == 2
        }
        if target.startswith("torch.ops."):
            space, name = target.split(".")[2:4]
            return self.program.call(
                name if space == "aten" else f"{space}::{name}", args, kwargs, label
            )
        name = target.rpartition(".")[2]
        if target.startswith(("_operator.", "math.")):
            return self.program.call(_PYTHON.get(name, name), args, kwargs, label)
        return self.program.call(name, args, kwargs, label)

    def _higher(self, name: str, given: list[Any], env: dict[str, Any], label: str) -> Any:
        """Higher-order operators: wrappers are inlined; cond computes both branches and selects."""
        args = [g["arg"] for g in given]
        if name in _INLINED:
            graph = next((a for a in args if "as_graph" in a), None)
            if graph is not None:
                rest = args[args.index(graph) + 1 :]
                return self._inner(graph["as_graph"]["graph"], rest, env)
        if name == "cond" and len(args) >= 4:
            test = self._argument(args[0], env)
            operands = [_as_argument(x) for x in self._argument(args[3], env)]
            if not isinstance(test, MutableTensor):
                return self._inner(args[1 if test else 2]["as_graph"]["graph"], operands, env)
            sides = [self._inner(a["as_graph"]["graph"], operands, env) for a in args[1:3]]
            return self._either(test, *sides)
        self.program.unknown[f"higher_order::{name}"] += 1
        return UNKNOWN

    def _either(self, test: MutableTensor, a: list[Any], b: list[Any]) -> list[Any]:
        condition = test.held
        assert isinstance(condition, Value)
        flag = ops.reshape(as_dtype(condition, "bool"), shape=())
        results = []
        for x, y in zip(a, b, strict=True):
            left, right = x.held, y.held
            if left.shape != right.shape:
                raise Unsupported(
                    f"torch: the branches of cond have results {left.type} and "
                    f"{right.type}; their types must be equal"
                )
            results.append(MutableTensor(ops.where(left, right, flag)))
        return results

    def _inner(self, graph: dict[str, Any], args: list[Any], env: dict[str, Any]) -> list[Any]:
        inside = dict(env)
        for place, given in zip(graph["inputs"], args, strict=True):
            value = given["value"] if "value" in given else self._argument(given, env)
            for name in output_names([place]):
                inside[name] = value
        self._nodes(graph, inside)
        return [self._argument(o, inside) for o in graph["outputs"]]

    def _argument(self, arg: dict[str, Any], env: dict[str, Any]) -> Any:
        kind, x = only_alternative(arg)
        match kind:
            case "as_none":
                return None
            case "as_tensor":
                return self._look(x["name"], env)
            case "as_tensors":
                return [self._look(t["name"], env) for t in x]
            case "as_optional_tensors":
                return [self._optional(t, env) for t in x]
            case "as_optional_tensor":
                return self._optional(x, env)
            case "as_sym_int" | "as_sym_float" | "as_sym_bool":
                return self._symbol(x, env)
            case "as_sym_ints" | "as_sym_floats" | "as_sym_bools":
                return [self._symbol(s, env) for s in x]
            case "as_scalar_type":
                if x not in EXPORTED:
                    raise Unsupported(f"torch: element type {x} of torch.export is not supported")
                return EXPORTED[x]
            case "as_device":
                return Device("cpu")
            case "as_layout" | "as_memory_format":
                return None
            case "as_nested_tensors":
                return [[self._look(t["name"], env) for t in row] for row in x]
            case (
                "as_float"
                | "as_int"
                | "as_bool"
                | "as_string"
                | "as_ints"
                | "as_bools"
                | ("as_floats")
                | "as_strings"
            ):
                return [number(v) for v in x] if isinstance(x, list) else number(x)
        raise Unsupported(f"torch: an argument of type '{kind[3:]}' is not supported")

    def _optional(self, x: dict[str, Any], env: dict[str, Any]) -> Any:
        return self._look(x["as_tensor"]["name"], env) if "as_tensor" in x else None

    def _symbol(self, x: dict[str, Any], env: dict[str, Any]) -> Any:
        kind, v = only_alternative(x)
        return self._look(v, env) if kind == "as_name" else number(v)

    def _look(self, name: Any, env: dict[str, Any]) -> Any:
        if name not in env:
            raise BadFile(
                f"torch: '{str(name)[:80]}' is read before it is computed; the file is damaged"
            )
        return env[name]

    def _bound(self, outputs: list[dict[str, Any]], made: Any, env: dict[str, Any]) -> None:
        """Store results under the names of the file."""
        if len(outputs) == 1 and "as_tensors" in outputs[0]:
            names = [str(t["name"]) for t in outputs[0]["as_tensors"]]
        else:
            names = output_names(outputs)
        many = isinstance(made, list | tuple)
        items = list(made) if many and (len(names) > 1 or len(made) == 1) else [made]
        if made is UNKNOWN:
            items = [UNKNOWN] * len(names)
        if len(names) > len(items):
            raise BadFile(f"torch: {len(names)} results are named; the operator has {len(items)}")
        for name, item in zip(names, items, strict=False):
            env[name] = item


def _as_argument(x: Any) -> dict[str, Any]:
    return {"value": x}
