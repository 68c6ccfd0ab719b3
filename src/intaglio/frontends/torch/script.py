"""TorchScript archives: classes, functions, constants and the root module."""

from __future__ import annotations

import ast
import contextlib
import functools
from dataclasses import dataclass, field
from typing import Any

from intaglio.errors import BadFile, Unsupported
from intaglio.frontends.torch.archive import Archive
from intaglio.frontends.torch.mutable_tensor import MutableTensor
from intaglio.frontends.torch.tensors import Number, loaded
from intaglio.frontends.torch.unpickle import Name, Record, Stored, unpickle
from intaglio.ir import Value

MAX_CODE = 64 << 20  # bytes


@dataclass
class Class:
    """A class of the file: methods, and fields in order (for named tuples)."""

    name: str
    methods: dict[str, ast.FunctionDef] = field(default_factory=dict)
    fields: list[str] = field(default_factory=list)
    tuple: bool = False
    values: dict[str, ast.expr] = field(default_factory=dict)


@dataclass(eq=False)
class Module:
    """A module or other object of the model; code may set its attributes."""

    kind: str
    attributes: dict[str, Any]
    path: str = ""
    state: Any = None  # state of PyTorch's own classes: packed weights

    def __repr__(self) -> str:
        return f"Module({self.kind} '{self.path}')"


class Script:
    """The classes, functions, constants and the root module of a TorchScript archive."""

    def __init__(self, archive: Archive):
        self.archive, self.what = archive, archive.what
        order = archive.text("byteorder").strip() if "byteorder" in archive else "little"
        self._swapped = order == "big"
        self._made: dict[int, Any] = {}
        self._kept: list[Any] = []  # keeps objects alive, so that their ids stay unique
        self._parsed = 0
        self._files: dict[str, dict[str, Class | ast.FunctionDef]] = {}

    @functools.cached_property
    def root(self) -> Module:
        """The model: the object in data.pkl."""
        record = unpickle(self.archive.read("data.pkl"), f"{self.what} (data.pkl)")
        if not isinstance(record, Record):
            raise BadFile(f"{self.what} has no module in data.pkl; it is damaged")
        result = self.object(record, "data")
        if not isinstance(result, Module):
            raise BadFile(f"{self.what} has no module in data.pkl; it is damaged")
        return result

    @functools.cached_property
    def constants(self) -> list[Any]:
        """The constants CONSTANTS.c0, CONSTANTS.c1, ... of the code."""
        if "constants.pkl" not in self.archive:
            return []
        stored = unpickle(self.archive.read("constants.pkl"), f"{self.what} (constants.pkl)")
        if not isinstance(stored, tuple | list):
            raise BadFile(f"{self.what} (constants.pkl) is not a list; it is damaged")
        results = [self.object(x, "constants", f"c{i}") for i, x in enumerate(stored)]
        for x in results:
            held = x.held if isinstance(x, MutableTensor) else None
            if isinstance(held, Value) and not held.shape and held.dtype in ("f64", "i64"):
                x.write(Number(held.type, held.name, held.data))
        return results

    @functools.cached_property
    def traced_inputs(self) -> list[Any]:
        """Shapes and element types of the traced inputs; [] if unknown."""
        if "traced_inputs.pkl" not in self.archive:
            return []
        stored = unpickle(self.archive.read("traced_inputs.pkl"), self.what)
        given = stored.get("forward", []) if isinstance(stored, dict) else []
        return list(given) if isinstance(given, list | tuple) else []

    def object(self, x: Any, folder: str, path: str = "") -> Any:
        """A stored object with MutableTensors and Modules; shared objects stay shared."""
        if id(x) in self._made:
            return self._made[id(x)]
        results: Any = x
        if isinstance(x, Stored):
            read = functools.partial(self._storage, folder)
            results = MutableTensor(loaded(x, read, self.what, self._swapped), path)
        elif isinstance(x, Record):
            results = Module(x.name, {}, path)
            self._made[id(x)] = results
            state = x.state if isinstance(x.state, dict) else {}
            for k, v in state.items():
                results.attributes[str(k)] = self.object(
                    v, folder, f"{path}.{k}" if path else str(k)
                )
            if not isinstance(x.state, dict):
                results.state = self.object(x.state, folder, path)
        elif isinstance(x, list | tuple):
            items = [self.object(y, folder, f"{path}.{i}") for i, y in enumerate(x)]
            results = items if isinstance(x, list) else tuple(items)
        elif isinstance(x, dict):
            results = {k: self.object(v, folder, f"{path}.{k}") for k, v in x.items()}
        elif isinstance(x, Name):
            results = str(x)
        if isinstance(x, Stored | Record | list | tuple | dict):
            self._made[id(x)] = results
            self._kept.append(x)
        return results

    def _storage(self, folder: str, key: str) -> bytes:
        name = f"{folder}/{key}"
        return self.archive.read(name if name in self.archive else key)

    # ---- code ----
    def lookup(self, qualified: str) -> Class | ast.FunctionDef | None:
        """A class or function by its qualified name."""
        module, _, name = qualified.rpartition(".")
        if module not in self._files:
            self._files[module] = self._file(module)
        return self._files[module].get(name)

    def _file(self, module: str) -> dict[str, Class | ast.FunctionDef]:
        path = f"code/{module.replace('.', '/')}.py"
        if path not in self.archive:
            return {}
        text = self.archive.text(path)
        self._parsed += len(text)
        if self._parsed > MAX_CODE:
            raise BadFile(f"{self.what} has more than {MAX_CODE} bytes of code; it is malicious")
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, MemoryError, RecursionError) as e:
            raise BadFile(f"{self.what}: {path} is not TorchScript ({e})") from None
        results: dict[str, Class | ast.FunctionDef] = {}
        for item in tree.body:
            if isinstance(item, ast.FunctionDef):
                results[item.name] = item
            elif isinstance(item, ast.ClassDef):
                results[item.name] = _class(item)
        return results

    def tensors(self) -> dict[str, MutableTensor]:
        """The tensors that modules hold, by path."""
        return {x.label: x for x in self._made.values() if isinstance(x, MutableTensor) and x.label}

    def module(self, path: str) -> Module | None:
        """The module at a dotted path; the root at the empty one."""
        found: Any = self.root
        for name in path.split(".") if path else []:
            found = found.attributes.get(name) if isinstance(found, Module) else None
        return found if isinstance(found, Module) else None

    def method(self, kind: str, name: str) -> ast.FunctionDef | None:
        found = self.lookup(kind)
        return found.methods.get(name) if isinstance(found, Class) else None

    def forward(self) -> ast.FunctionDef:
        """The forward method of the model."""
        found = self.method(self.root.kind, "forward")
        if found is None:
            raise Unsupported(
                f"{self.what}: '{self.root.kind}' has no method 'forward'; save a "
                "traced or scripted module"
            )
        return found


def _class(item: ast.ClassDef) -> Class:
    bases = {b.id for b in item.bases if isinstance(b, ast.Name)}
    result = Class(item.name, tuple="NamedTuple" in bases)
    for s in item.body:
        if isinstance(s, ast.FunctionDef):
            result.methods[s.name] = s
        elif isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name):
            result.fields.append(s.target.id)
        elif isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name):
            with contextlib.suppress(AttributeError):
                result.values[s.targets[0].id] = s.value
    return result
