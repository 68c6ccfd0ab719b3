"""Programs of torch.export (.pt2): a list of operators in JSON, and tensors beside it."""

from __future__ import annotations

import functools
import json
import math
import re
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.errors import BadFile, BadInput, Unsupported, option
from intaglio.frontends.options import ImportOptions
from intaglio.frontends.torch.archive import Archive
from intaglio.frontends.torch.importer import as_dtype
from intaglio.frontends.torch.inputs import Inputs, finished, results, state_results, warn_of_state
from intaglio.frontends.torch.mutable_tensor import MutableTensor
from intaglio.frontends.torch.program import UNKNOWN, Program
from intaglio.frontends.torch.scalars import Device
from intaglio.frontends.torch.tensors import CODES, EXPORTED, loaded, strided
from intaglio.frontends.torch.unpickle import Stored, unpickle
from intaglio.ir import Array, Graph, Value, constant

_OLD = "serialized_exported_program.json"
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
    return _OLD in archive or _model(archive) is not None


def _model(archive: Archive) -> str | None:
    found = [n for n in archive.names if n.startswith("models/") and n.endswith(".json")]
    return found[0] if found else None


def load_exported(archive: Archive, options: ImportOptions) -> Graph:
    """The program of a .pt2 file."""
    name = _model(archive) or _OLD
    try:
        program = json.loads(archive.text(name))
    except (ValueError, RecursionError) as e:
        raise BadFile(f"{archive.what}: '{name}' is damaged ({str(e)[:120]})") from None
    if not isinstance(program, dict) or "graph_module" not in program:
        raise BadFile(f"{archive.what}: '{name}' holds no program; it is damaged")
    return _Exported(archive, name, program, options).graph()


class _Exported:
    def __init__(self, archive: Archive, name: str, stored: dict[str, Any], options: ImportOptions):
        self.archive, self.stored, self.what = archive, stored, archive.what
        self.name = name.removeprefix("models/").removesuffix(".json")
        self.module = stored["graph_module"]
        self.program = Program()
        self.inputs = Inputs(options, self.program)
        self.symbols: dict[str, int] = {k: int(v) for k, v in options.dims.items()}
        self.open: dict[str, str] = {}
        self.buffers: dict[str, tuple[MutableTensor, Value]] = {}  # and the value before a call
        self.after: dict[str, Any] = {}  # buffers that a call changes
        self._configs: dict[str, dict[str, Any]] = {}
        self.exposed: set[str] = set()  # those that are inputs and outputs
        self.stored_state: dict[str, Array | None] = {}  # what these begin with
        order = archive.text("byteorder").strip() if "byteorder" in archive else "little"
        self.swapped = order == "big"

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
            kind, body = _only(spec)
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
            again = _Exported(self.archive, self.name, self.stored, self.inputs.options)
            again.exposed = set(self.after)
            return again.graph()
        pairs = {
            n: (before.type, self.after.get(n, cell))
            for n, (cell, before) in self.buffers.items()
            if n in self.exposed
        }
        version = str(self.stored.get("torch_version", ""))[:40]
        metadata = {"producer": f"torch.export {version}".strip()}
        outputs = results(made) + state_results(pairs)
        state = {f"state.{n}": self.stored_state.get(n) for n in pairs}
        return finished(self.inputs, outputs, self.name, metadata, state)

    # ---- shapes ----
    def _bind(self, graph: dict[str, Any], signature: dict[str, Any]) -> None:
        """Numbers for the symbols of shapes: what the user gave, by name or by a shape."""
        for spec in signature["input_specs"]:
            kind, body = _only(spec)
            if kind != "user_input" or "as_tensor" not in body["arg"]:
                continue
            name = body["arg"]["as_tensor"]["name"]
            sizes = graph["tensor_values"][name]["sizes"]
            given = self.inputs.options.shapes.get(name)
            if given is not None and len(given) != len(sizes):
                raise BadInput(f"torch: input '{name}' has rank {len(sizes)}, not {len(given)}")
            for i, size in enumerate(sizes):
                symbol = _symbol_of(size)
                if symbol.isidentifier():
                    if given is not None:
                        self.symbols[symbol] = int(given[i])
                    elif symbol not in self.symbols:
                        self.open[symbol] = name

    def _sizes(self, name: str, meta: dict[str, Any]) -> list[int]:
        made = []
        for size in meta["sizes"]:
            if "as_int" in size:
                made.append(int(size["as_int"]))
                continue
            symbol = _symbol_of(size)
            if symbol not in self.symbols:
                raise BadInput(
                    f"torch: dimension '{symbol[:40]}' of input '{name}' is open; give "
                    f"it with {option('dims', {symbol[:40]: 1})}, or the whole shape with "
                    f"{option('shapes')}"
                )
            made.append(self.symbols[symbol])
        return made

    # ---- inputs ----
    def _input(self, spec: dict[str, Any], graph: dict[str, Any], env: dict[str, Any]) -> None:
        kind, body = _only(spec)
        if kind == "user_input":
            arg = body["arg"]
            if "as_tensor" in arg:
                name = str(arg["as_tensor"]["name"])
                meta = graph["tensor_values"][name]
                env[name] = self.inputs.tensor(name, self._sizes(name, meta), _dtype(meta))
            elif "as_sym_int" in arg and "as_name" in arg["as_sym_int"]:
                name = str(arg["as_sym_int"]["as_name"])
                env[name] = self.inputs._number(name, "int", None, None)
        elif kind in ("parameter", "buffer", "tensor_constant"):
            name = str(body[f"{kind}_name"])
            cell = self._tensor(kind, name)
            held = cell.held
            if name in self.exposed and isinstance(held, Value):
                self.stored_state[name] = held.data
                cell = self.inputs.tensor(f"state.{name}", held.shape, held.dtype)
            if kind == "buffer" and isinstance(cell.held, Value):
                self.buffers[name] = (cell, cell.held)
            env[body["arg"]["name"]] = cell
        elif kind == "constant_input":
            env[str(body["name"])] = _constant(body["value"])
        else:
            raise Unsupported(f"torch: the program takes a {kind}, which is not read")

    def _tensor(self, kind: str, name: str) -> MutableTensor:
        if _OLD in self.archive:
            return MutableTensor(self._old_tensor(name), name)
        for folder in ("weights", "constants") if kind != "tensor_constant" else ("constants",):
            entry = self._config(folder).get(name)
            if entry is None:
                continue
            if entry.get("use_pickle") or entry.get("tensor_meta") is None:
                raise Unsupported(
                    f"torch: tensor '{name}' is stored as a pickled object, which is not read"
                )
            return MutableTensor(
                self._raw(f"data/{folder}/{entry['path_name']}", entry["tensor_meta"]), name
            )
        raise BadFile(f"{self.what} lacks tensor '{name[:120]}'; it is damaged")

    def _config(self, folder: str) -> dict[str, Any]:
        """Where the tensors of a folder lie, by name."""
        if folder not in self._configs:
            self._configs[folder] = self._read_config(folder)
        return self._configs[folder]

    def _read_config(self, folder: str) -> dict[str, Any]:
        name = f"data/{folder}/{self.name}_{folder}_config.json"
        if name not in self.archive:
            return {}
        try:
            made = json.loads(self.archive.text(name))["config"]
        except (ValueError, RecursionError, TypeError, KeyError) as e:
            raise BadFile(f"{self.what}: '{name}' is damaged ({str(e)[:120]})") from None
        return made if isinstance(made, dict) else {}

    def _raw(self, path: str, meta: dict[str, Any]) -> Value:
        shape = tuple(int(s["as_int"]) for s in meta["sizes"])
        stride = tuple(int(s["as_int"]) for s in meta["strides"])
        kind = np.dtype(dtypes.numpy_of(_dtype(meta)))
        kind = kind.newbyteorder("S") if self.swapped else kind
        offset = int(meta["storage_offset"].get("as_int", 0))
        return constant(strided(self.archive.read(path), kind, offset, shape, stride, self.what))

    def _old_tensor(self, name: str) -> Any:
        """Before PyTorch 2.8: archives of torch.save inside of the archive."""
        for record in ("serialized_state_dict.pt", "serialized_constants.pt"):
            if record not in self.archive:
                continue
            inner = Archive(self.archive.read(record), f"{self.what} ({record})")
            stored = unpickle(inner.read("data.pkl"), inner.what, outline=True)
            if isinstance(stored, dict) and isinstance(stored.get(name), Stored):
                return loaded(stored[name], functools.partial(_inner_storage, inner), inner.what)
        raise BadFile(f"{self.what} lacks tensor '{name[:120]}'; it is damaged")

    # ---- operators ----
    def _nodes(self, graph: dict[str, Any], env: dict[str, Any]) -> None:
        for node in graph["nodes"]:
            names = _names(node["outputs"])
            made = self._call(node, env, str(node.get("name") or (names or ["?"])[0]))
            self._bound(node["outputs"], made, env)

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
        """Operators over graphs: wrappers are followed, cond follows both and selects."""
        args = [g["arg"] for g in given]
        if name in _INLINED:
            graph = next((a for a in args if "as_graph" in a), None)
            if graph is not None:
                rest = args[args.index(graph) + 1 :]
                return self._inner(graph["as_graph"]["graph"], rest, env)
        if name == "cond" and len(args) >= 4:
            test = self._argument(args[0], env)
            operands = [_wrap(x) for x in self._argument(args[3], env)]
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
        made = []
        for x, y in zip(a, b, strict=True):
            left, right = x.held, y.held
            if left.shape != right.shape:
                raise Unsupported(
                    f"torch: branches make {left.type} and {right.type}; which is "
                    "known only at run time"
                )
            made.append(MutableTensor(ops.where(left, right, flag)))
        return made

    def _inner(self, graph: dict[str, Any], args: list[Any], env: dict[str, Any]) -> list[Any]:
        inside = dict(env)
        for place, given in zip(graph["inputs"], args, strict=True):
            value = given["value"] if "value" in given else self._argument(given, env)
            for name in _names([place]):
                inside[name] = value
        self._nodes(graph, inside)
        return [self._argument(o, inside) for o in graph["outputs"]]

    def _argument(self, arg: dict[str, Any], env: dict[str, Any]) -> Any:
        kind, x = _only(arg)
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
                    raise Unsupported(f"torch: element type {x} of torch.export is not known")
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
                return [_number(v) for v in x] if isinstance(x, list) else _number(x)
        raise Unsupported(f"torch: an argument of kind '{kind[3:]}' is not read")

    def _optional(self, x: dict[str, Any], env: dict[str, Any]) -> Any:
        return self._look(x["as_tensor"]["name"], env) if "as_tensor" in x else None

    def _symbol(self, x: dict[str, Any], env: dict[str, Any]) -> Any:
        kind, v = _only(x)
        return self._look(v, env) if kind == "as_name" else _number(v)

    def _look(self, name: Any, env: dict[str, Any]) -> Any:
        if name not in env:
            raise BadFile(
                f"torch: '{str(name)[:80]}' is read before it is made; the file is damaged"
            )
        return env[name]

    def _bound(self, outputs: list[dict[str, Any]], made: Any, env: dict[str, Any]) -> None:
        """Results by the names that the file gives them."""
        if len(outputs) == 1 and "as_tensors" in outputs[0]:
            names = [str(t["name"]) for t in outputs[0]["as_tensors"]]
        else:
            names = _names(outputs)
        many = isinstance(made, list | tuple)
        items = list(made) if many and (len(names) > 1 or len(made) == 1) else [made]
        if made is UNKNOWN:
            items = [UNKNOWN] * len(names)
        if len(names) > len(items):
            raise BadFile(f"torch: {len(names)} results are named, {len(items)} are made")
        for name, item in zip(names, items, strict=False):
            env[name] = item


def _symbol_of(size: dict[str, Any]) -> str:
    """The symbol of an open extent: plain, or as sympy prints it."""
    text = str(size.get("as_expr", {}).get("expr_str", ""))
    found = re.fullmatch(r"Symbol\('(\w+)'(, \w+=\w+)*\)", text)
    return found[1] if found else text


def _inner_storage(archive: Archive, key: str) -> bytes:
    return archive.read(f"data/{key}")


def _wrap(x: Any) -> dict[str, Any]:
    return {"value": x}


def _only(x: dict[str, Any]) -> tuple[str, Any]:
    """The one alternative that is set of a union."""
    if not isinstance(x, dict) or len(x) != 1:
        raise BadFile(f"torch: one alternative is expected in {str(x)[:80]}; the file is damaged")
    return next(iter(x.items()))


def _names(outputs: list[dict[str, Any]]) -> list[str]:
    names: list[str] = []
    for o in outputs:
        kind, x = _only(o)
        if kind in ("as_tensor", "as_custom_obj"):
            names.append(str(x["name"]))
        elif kind == "as_tensors":
            names += [str(t["name"]) for t in x]
        elif kind.startswith("as_sym_") and isinstance(x, dict):
            names.append(str(x.get("as_name", "?")))
        elif kind == "as_optional_tensor":
            names.append(str(x.get("as_tensor", {}).get("name", "?")))
        elif kind == "as_none":
            names.append("?")
    return names


def _number(x: Any) -> Any:
    """JSON has no infinities; they come as words."""
    if isinstance(x, str) and x in ("Infinity", "-Infinity", "NaN", "inf", "-inf", "nan"):
        return {"I": math.inf, "-": -math.inf, "N": math.nan, "i": math.inf, "n": math.nan}[x[0]]
    return x


def _constant(x: dict[str, Any]) -> Any:
    kind, v = _only(x)
    return None if kind == "as_none" else _number(v)


def _dtype(meta: dict[str, Any]) -> str:
    code = EXPORTED.get(meta["dtype"])
    if code is None or code not in CODES:
        raise Unsupported(f"torch: element type {meta['dtype']} of torch.export is not known")
    return CODES[code]
