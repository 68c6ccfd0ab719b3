"""Live models: nn.Module, ScriptModule and ExportedProgram objects.

A module is exported (torch.export), scripted (torch.jit.script) or traced. A trace follows one path
through the module's Python code. It is used only if no line of that code reads a value of an input;
a module with such a line must be exported or scripted, or is refused with the line.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from intaglio.errors import BadInput, IntaglioError, Unsupported
from intaglio.frontends.options import ImportOptions
from intaglio.frontends.torch import load_torch
from intaglio.frontends.torch.module_runs import (
    kept_buffers,
    negated,
    outputs_agree,
    plain_outputs,
    script_options,
)
from intaglio.frontends.torch.value_reads import Place, Reads, find_value_reads
from intaglio.ir import Graph

# TracerWarnings about values and shapes in Python. Value reads are found before the trace; shapes
# are fixed when compiling.
ABOUT_VALUES = ("Converting a tensor to", "Iterating over", "Using len", "registered as constants")


def load_live(model: Any, inputs: Any, options: ImportOptions) -> Graph:
    """The graph of a live model; `inputs` are examples for a module."""
    import torch

    if type(model).__name__ == "ExportedProgram":
        return load_torch(_exported(model), options)
    if isinstance(model, torch.jit.ScriptModule):
        return load_torch(_scripted(model), options)
    args, kwargs = _examples(inputs)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return _Live(model, args, kwargs, options).graph()
    finally:
        model.train(was_training)


def _examples(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if inputs is None:
        raise BadInput(
            "torch: a live module needs examples of its inputs: "
            "intaglio.load(module, inputs=(example,))"
        )
    if isinstance(inputs, Mapping):
        return (), {k: _tensor(v) for k, v in inputs.items()}
    many = isinstance(inputs, Sequence) and not isinstance(inputs, str)
    return tuple(_tensor(x) for x in (inputs if many else [inputs])), {}


def _tensor(x: Any) -> Any:
    import torch

    if isinstance(x, np.ndarray):
        return torch.from_numpy(x)
    if isinstance(x, list | tuple):
        return type(x)(_tensor(y) for y in x)
    return x


class _Live:
    """One module with its example inputs, and the ways to read it."""

    def __init__(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: ImportOptions
    ):
        self.model, self.args, self.kwargs, self.options = model, args, kwargs, options
        self.said: list[Any] = []  # warnings of the attempt that succeeded

    def graph(self) -> Graph:
        with plain_outputs(self.model):
            program, why = self._attempt(self._export)
            if program is not None and _has_higher_order(program):
                return self._done(self._checked(program))
            reads = self._reads()
            if not reads.values:
                return self._done(self._without_branches(program, why, reads))
            if program is not None:
                graph, why = self._attempt(lambda: self._checked(program))
                if why is None:
                    return self._done(graph)
        return self._done(self._script(why, reads.values))

    def _done(self, graph: Graph) -> Graph:
        """The graph; warnings of the attempt that made it are given again."""
        for w in self.said:
            if not issubclass(w.category, DeprecationWarning | FutureWarning):  # of PyTorch itself
                warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)
        return graph

    def _attempt(self, way: Callable[[], Any]) -> tuple[Any, Exception | None]:
        """The result of `way`, or its exception, which may be any."""
        try:
            with _quiet() as said:
                result = way()
        except Exception as e:
            return None, e
        self.said = said
        return result, None

    def _export(self) -> Any:
        import torch

        return torch.export.export(self.model, self.args, self.kwargs)

    def _reads(self) -> Reads:
        """Where the module reads values of its inputs; its buffers are left unchanged."""
        try:
            with kept_buffers(self.model):
                return find_value_reads(self.model, self.args, self.kwargs)
        except Exception as e:
            raise BadInput(
                f"torch: the module fails on its example inputs: {_words(e)}; give examples that "
                "it computes"
            ) from e

    # ---- modules that read values in Python ----
    def _checked(self, program: Any) -> Graph:
        """The graph of an export that computes what the module does, for either sign of the inputs.

        A module may catch the exception by which torch.export refuses a branch.
        """
        run, given = program.module(), (self.args, self.kwargs)
        for args, kwargs in (given, negated(given)):
            try:
                with kept_buffers(self.model):
                    want = self.model(*args, **kwargs)
            except Exception:  # inputs that the module itself refuses
                continue
            if not outputs_agree(run(*args, **kwargs), want):
                raise Unsupported("the exported program computes another result than the module")
        return load_torch(_exported(program), self.options)

    def _script(self, why: Exception | None, places: list[Place]) -> Graph:
        """The graph of a script, in which both sides of a branch are computed."""
        import torch

        options = script_options(self.model, self.args, self.kwargs, self.options)
        graph, also = self._attempt(
            lambda: load_torch(_scripted(torch.jit.script(self.model)), options)
        )
        if also is not None:
            raise Unsupported(
                f"torch: {places[0]} reads a value that depends on the inputs; a compiled model "
                "cannot follow it in Python, and a trace would fix the value of the example; use "
                f"torch.where or torch.cond (export: {_words(why)}; script: {_words(also)})"
            )
        return graph

    # ---- modules that read only shapes ----
    def _without_branches(self, program: Any, why: Exception | None, reads: Reads) -> Graph:
        if program is not None:
            return load_torch(_exported(program), self.options)
        assert why is not None
        return self._trace(why, reads.shapes)

    def _trace(self, why: Exception, varying: list[Place]) -> Graph:
        """The graph of a trace; warnings say that it is one, and what the tracer doubts."""
        import torch

        named = {"example_inputs": self.args, "example_kwarg_inputs": self.kwargs}
        given = {k: v for k, v in named.items() if v}
        script, also = self._attempt(  # strict=False: dicts are allowed as outputs
            lambda: _scripted(torch.jit.trace(self.model, **given, strict=False))
        )
        if also is not None:
            raise Unsupported(
                f"torch: the module can neither be exported ({_words(why)}) nor traced "
                f"({_words(also)})"
            ) from also
        doubts = [w for w in self.said if issubclass(w.category, torch.jit.TracerWarning)]
        fixed = [w for w in doubts if any(words in str(w.message) for words in ABOUT_VALUES)]
        if varying and fixed:
            place = Place(fixed[0].filename, fixed[0].lineno, "the module")
            raise Unsupported(
                f"torch: {place} reads a shape that depends on the inputs ({varying[0]}); a "
                "compiled model cannot follow it in Python; compute with a fixed shape and a mask"
            )
        self.said = [w for w in self.said if w not in fixed]
        warnings.warn(
            f"torch: the module was traced, because torch.export failed: {_words(why)}; no line of "
            "it reads a value of an input, so that a trace is exact for inputs of these shapes",
            stacklevel=6,
        )
        return load_torch(script, self.options)


def _has_higher_order(program: Any) -> bool:
    """Whether torch.cond or the like is called; eager PyTorch compiles it, which modes disturb."""
    import torch

    kind = torch._ops.HigherOrderOperator
    return any(isinstance(n.target, kind) for n in program.graph.nodes)


@contextlib.contextmanager
def _quiet() -> Iterator[list[Any]]:
    """Collects warnings; keeps the logs and graphs that a failed export prints off the terminal."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with (
            warnings.catch_warnings(record=True) as said,
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("always")
            yield said
    finally:
        logging.disable(before)


def _words(e: Exception | None) -> str:
    """The beginning of an exception's message: the first clause, at most 120 characters."""
    text = " ".join(str(e).split()).removeprefix("torch: ")
    if not isinstance(e, IntaglioError):
        text = f"{type(e).__name__}: {text}" if text else type(e).__name__
    return text.split("; ")[0].split(" (unhinted")[0].split(" File ")[0][:120].rstrip(" .:")


def _exported(program: Any) -> bytes:
    import torch

    file = io.BytesIO()
    torch.export.save(program, file)
    return file.getvalue()


def _scripted(module: Any) -> bytes:
    import torch

    file = io.BytesIO()
    torch.jit.save(module, file)
    return file.getvalue()
