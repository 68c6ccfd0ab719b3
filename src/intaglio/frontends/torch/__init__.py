"""PyTorch models: TorchScript archives, exported programs and live modules.

Files are read without PyTorch: archives are unzipped, pickles are parsed as data, the code of
TorchScript is followed as text. Nothing of a file is ever run.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from intaglio.errors import BadFile, IntaglioError
from intaglio.frontends.torch.archive import Archive
from intaglio.frontends.torch.evaluate import Evaluator
from intaglio.frontends.torch.exported import is_exported, load_exported
from intaglio.frontends.torch.inputs import Inputs, Wishes, finished, results
from intaglio.frontends.torch.program import DAMAGE, Program, one_line
from intaglio.frontends.torch.script import Script
from intaglio.frontends.torch.weights import explain, explain_old
from intaglio.ir import Graph


@functools.cache
def _import_families() -> None:
    """Import every module beside this one: the importers register themselves."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


def load_torch(
    model: str | Path | bytes,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    values: Mapping[str, Any] | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    dtypes: Mapping[str, str] | None = None,
) -> Graph:
    """A Graph from a TorchScript archive or an exported program, a path or bytes."""
    _import_families()
    wishes = Wishes(shapes or {}, dtypes or {}, dims or {}, values or {}, inputs, outputs)
    what = "the bytes given" if isinstance(model, bytes) else f"'{model}'"
    with one_line():
        try:
            source = model if isinstance(model, bytes) else Path(model)
            if isinstance(source, Path) and not zipfile.is_zipfile(source):
                explain_old(what)
            return _load(Archive(source, what), wishes)
        except IntaglioError:
            raise
        except DAMAGE as e:
            words = " ".join(str(e).split())[:160]
            raise BadFile(f"torch: {what} is damaged ({type(e).__name__}: {words})") from e


def _load(archive: Archive, wishes: Wishes) -> Graph:
    if is_exported(archive):
        return load_exported(archive, wishes)
    if not any(n.startswith("code/") for n in archive.names):
        explain(archive)
    return _load_script(Script(archive), wishes)


def _load_script(script: Script, wishes: Wishes) -> Graph:
    function, program = script.forward(), Program()
    inputs = Inputs(wishes, program)
    arguments = function.args.args[1:]
    defaults = function.args.defaults
    evaluator = Evaluator(script, program)
    known = {a.arg: d for a, d in zip(arguments[len(arguments) - len(defaults) :], defaults,
                                      strict=False)}  # fmt: skip
    samples = script.traced_inputs
    given = []
    for i, a in enumerate(arguments):
        default = evaluator.constant(known[a.arg]) if a.arg in known else None
        sample = samples[i] if i < len(samples) else None
        given.append(inputs.argument(a.arg, a.annotation, sample, default))
    made = evaluator.method(script.root, function, given, {})
    program.refuse_unknown()
    if evaluator.changed:
        names = ", ".join(dict.fromkeys(evaluator.changed))
        warnings.warn(f"torch: the model keeps state between calls ({names[:200]}); every run "
                      "starts from what is stored", stacklevel=4)  # fmt: skip
    name = script.root.kind.rpartition(".")[2]
    return finished(inputs, results(made), name, {"producer": "TorchScript"})
