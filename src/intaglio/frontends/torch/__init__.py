"""PyTorch importer: TorchScript archives (.pt), exported programs (.pt2) and live modules.

Files are read without PyTorch: pickles are parsed as data, and TorchScript code is interpreted.
No code of a file is ever executed.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from intaglio.errors import BadFile, IntaglioError, Unsupported
from intaglio.frontends.options import NO_OPTIONS, ImportOptions, refuse_unknown_dims
from intaglio.frontends.torch.archive import Archive
from intaglio.frontends.torch.exported_program import is_exported, load_exported
from intaglio.frontends.torch.inputs import (
    Inputs,
    build_graph,
    named_results,
    state_results,
    warn_of_state,
)
from intaglio.frontends.torch.mutable_tensor import MutableTensor
from intaglio.frontends.torch.program import DAMAGE, Program, printable_errors
from intaglio.frontends.torch.script import Script
from intaglio.frontends.torch.script_interpreter import Interpreter
from intaglio.frontends.torch.state_dict import raise_legacy_file, raise_no_network
from intaglio.ir import Array, Graph, Type, Value


@functools.cache
def _import_families() -> None:
    """Import all modules of this package; importers register themselves."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


def load_torch(model: str | Path | bytes, options: ImportOptions = NO_OPTIONS) -> Graph:
    """A Graph from a TorchScript archive or an exported program, a path or bytes."""
    _import_families()
    what = "the bytes given" if isinstance(model, bytes) else f"'{model}'"
    with printable_errors():
        try:
            source = model if isinstance(model, bytes) else Path(model)
            if isinstance(source, Path) and not zipfile.is_zipfile(source):
                raise_legacy_file(what)
            return _load(Archive(source, what), options)
        except IntaglioError:
            raise
        except DAMAGE as e:
            words = " ".join(str(e).split())[:160]
            raise BadFile(f"torch: {what} is damaged ({type(e).__name__}: {words})") from e


def _load(archive: Archive, options: ImportOptions) -> Graph:
    if is_exported(archive):
        return load_exported(archive, options)
    if not any(n.startswith("code/") for n in archive.names):
        raise_no_network(archive)
    return _load_script(archive, options)


def _load_script(archive: Archive, options: ImportOptions) -> Graph:
    refuse_unknown_dims("torch", options, ())  # TorchScript has no names of dimensions
    run = _ScriptRun(Script(archive), options, {})
    run.follow()
    kept = run.kept()
    if kept and not options.state:
        warn_of_state(list(kept))
    elif kept:  # again, with the state as inputs
        run = _ScriptRun(Script(archive), options, kept)
        run.follow()
    return run.graph()


class _ScriptRun:
    """One interpretation of a model's forward method, with `state` (by path) as inputs."""

    def __init__(self, script: Script, options: ImportOptions, state: Mapping[str, Any]):
        self.script, self.program = script, Program()
        self.inputs = Inputs(options, self.program)
        self.interpreter = Interpreter(script, self.program)
        self.made: Any = None
        self.given = state
        self.before: dict[str, Type] = {}
        self.initial: dict[str, Array | None] = {}

    def follow(self) -> None:
        function, interpreter = self.script.forward(), self.interpreter
        arguments, defaults = function.args.args[1:], function.args.defaults
        last = arguments[len(arguments) - len(defaults) :]
        known = {a.arg: d for a, d in zip(last, defaults, strict=False)}
        samples, given = self.script.traced_inputs, []
        for i, a in enumerate(arguments):
            default = interpreter.constant(known[a.arg]) if a.arg in known else None
            sample = samples[i] if i < len(samples) else None
            given.append(self.inputs.argument(a.arg, a.annotation, sample, default))
        root = self.script.root
        self._give_state()
        self.stored = {path: (c, c.held) for path, c in self.script.tensors().items()}
        self.made = interpreter.method(root, function, given, {})
        self.program.refuse_unknown()

    def _give_state(self) -> None:
        for path, value in self.given.items():
            owner = self.script.module(path.rpartition(".")[0])
            if owner is None:
                raise Unsupported(
                    f"torch: the state '{path}' belongs to an unknown module; its module must be "
                    "part of the model"
                )
            if isinstance(value, MutableTensor) and isinstance(value.held, Value):
                kind = value.held.type
                self.before[path] = Type(kind.dtype, kind.shape)
                old = owner.attributes.get(path.rpartition(".")[2])
                now = old.held if isinstance(old, MutableTensor) else None
                if not isinstance(now, Value) or now.type.but(quant=None) != self.before[path]:
                    now = None
                self.initial[f"state.{path}"] = now.data if now else None
                value = self.inputs.tensor(f"state.{path}", kind.shape, kind.dtype)
            owner.attributes[path.rpartition(".")[2]] = value

    def kept(self) -> dict[str, Any]:
        """The state after a call: attributes that were set, tensors that were overwritten."""
        results = {path: m.attributes[name] for path, (m, name) in self.interpreter.changed.items()}
        for path, (cell, before) in self.stored.items():
            if cell.held is not before:
                results.setdefault(path, cell)
        return results

    def graph(self) -> Graph:
        after = self.kept()
        pairs = {}
        for path, kind in self.before.items():
            owner = self.script.module(path.rpartition(".")[0])
            now = owner.attributes[path.rpartition(".")[2]] if owner else None
            pairs[path] = (kind, after.get(path, now))
        outputs = named_results(self.made) + state_results(pairs)
        name = self.script.root.kind.rpartition(".")[2]
        return build_graph(self.inputs, outputs, name, {"producer": "TorchScript"}, self.initial)
