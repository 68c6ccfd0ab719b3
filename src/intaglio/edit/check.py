"""Checks an edited model by running it and the original on the same data.

The original model is cut at the same tensors by the importer, which shares no code with the editor.
Outputs that no edit changed on purpose must be equal. Of others only the types are checked.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from intaglio import dtypes
from intaglio.analysis import agreement
from intaglio.edit.check_result import LIMIT, Check, OutputCheck
from intaglio.edit.correspondence import changed_tensors, views_of_inputs
from intaglio.edit.formula import shape_text
from intaglio.edit.origin import View
from intaglio.edit.sizes import run_sizes
from intaglio.edit.state import State
from intaglio.edit.tensor_types import dtype_of, shape_of, type_text
from intaglio.errors import BadInput, IntaglioError, Unsupported, option
from intaglio.frontends.onnx import OnnxModel, load_onnx
from intaglio.frontends.onnx.topological_order import reads
from intaglio.frontends.options import ImportOptions
from intaglio.interpret import interpret
from intaglio.ir import Array, Graph

if TYPE_CHECKING:
    from intaglio.edit.editor import Editor

ENGINES = ("interpreter", "native")
Feeds = dict[str, Array]


def check(
    editor: Editor,
    engine: str = "interpreter",
    seed: int = 0,
    data: Mapping[str, Array] | None = None,
) -> Check:
    """Run both models on random inputs, or on `data` for the edited model."""
    if engine not in ENGINES:
        raise BadInput(f"engine is {engine!r}; it is one of {', '.join(ENGINES)}")
    missing = [i.name for i in editor.state.inputs if data and i.name not in data]
    if missing:
        raise BadInput(f"the data has no array for input '{missing[0]}'; add it")
    work = _Comparison(editor, engine, seed, dict(data or {}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the import: they concern the original as well
        try:
            return work.run()
        except Unsupported as e:
            return Check(False, str(e))
        except IntaglioError as e:
            if reason := work.why_original_fails():
                return Check(False, reason)
            raise BadInput(
                f"{work.first_broken(editor)}the edited model does not run: {e}; nothing is "
                f"written; to write it nevertheless, skip the comparison with "
                f"{option('check', False)}"
            ) from e


class _Comparison:
    def __init__(self, editor: Editor, engine: str, seed: int, data: Feeds):
        self.state: State = editor.state
        self.engine, self.seed, self.data = engine, seed, data
        self.limits = ""
        self.original = OnnxModel(editor.source.proto, {}, editor.source.folder)
        self.edited = OnnxModel(self.state.proto(), {}, editor.source.folder)

    def run(self) -> Check:
        result = Check(True)
        for options in self._sizes():
            graph = load_onnx(self.edited, options)
            feeds, got = self._outputs(graph)
            self._check_types(got)
            if options.shapes:
                shown = (f"{n} {shape_text(tuple(s))}" for n, s in options.shapes.items())
                result.sizes.append(", ".join(shown))
            result.outputs = _worse(result.outputs, self._compare(feeds, got))
        result.limits = self.limits
        return result

    def why_original_fails(self) -> str:
        """Why Intaglio cannot run the original either; "" if it can."""
        try:
            options = run_sizes(self.original, self.original, {})[0][0]
            agreement.usable_inputs(load_onnx(self.original, options), self.seed)
        except IntaglioError as e:
            return str(e)
        return ""

    def first_broken(self, editor: Editor) -> str:
        """The first edit after which the model cannot be imported, for a message."""
        if len(editor.edits) == 1 and not editor.edits[0].where:
            return ""
        for made, state in zip(editor.edits, editor.states, strict=True):
            model = OnnxModel(state.proto(), {}, self.edited.folder)
            try:
                run_sizes(model, self.original, views_of_inputs(state))
            except IntaglioError:
                return f"{made.where or made.line}: "
        return ""

    def _sizes(self) -> list[ImportOptions]:
        """Options that bind the open dimensions of the edited model, for each run."""
        if self.data:
            return [ImportOptions(shapes={n: a.shape for n, a in self.data.items()})]
        found, self.limits = run_sizes(self.edited, self.original, views_of_inputs(self.state))
        return found

    def _outputs(self, graph: Graph) -> tuple[Feeds, Feeds]:
        if self.data:
            return self.data, self._run(graph, self.data)
        feeds, got = agreement.usable_inputs(graph, self.seed)
        return feeds, got if self.engine == "interpreter" else self._run(graph, feeds)

    def _run(self, graph: Graph, feeds: Feeds) -> Feeds:
        run = agreement.run_native if self.engine == "native" else interpret
        return run(graph, feeds)

    def _check_types(self, got: Feeds) -> None:
        """BadInput if an output has another type than the edited model declares."""
        for info in self.state.outputs:
            array, shape = got.get(info.name), shape_of(info.type)
            if array is None:
                continue
            fits = shape is None or (
                len(shape) == array.ndim
                and all(
                    isinstance(d, str) or d == n for d, n in zip(shape, array.shape, strict=True)
                )
            )
            if not fits or dtypes.name_of(array.dtype) != dtype_of(info.type):
                made = f"{dtypes.name_of(array.dtype)}[{shape_text(array.shape)}]"
                raise BadInput(
                    f"output '{info.name}' is declared {type_text(info.type)}, but running the "
                    f"edited model gives {made}; nothing is written; please report it"
                )

    # ---- the original ----------------------------------------------------------------------------
    def _compare(self, feeds: Feeds, got: Feeds) -> list[OutputCheck]:
        origin, changed = self.state.origin, changed_tensors(self.state)
        views = views_of_inputs(self.state)
        inputs = origin.bound | {
            views[name].tensor: views[name].backward(array)
            for name, array in feeds.items()
            if name in views
        }
        found: list[OutputCheck] = []
        for intended in (False, True):
            names = [n for n in got if (n in changed) == intended]
            mine = {n: origin.views[n] for n in names if n in origin.views}
            want = self._original(inputs, mine, intended)
            for name in names:
                found.append(_difference(name, got[name], mine.get(name), want, intended))
        order = list(got)
        return sorted(found, key=lambda o: order.index(o.name))

    def _original(self, inputs: Feeds, views: Mapping[str, View], intended: bool) -> Feeds:
        """Tensors of the original model for these inputs."""
        tensors = list(dict.fromkeys(v.tensor for v in views.values()))
        result = {name: inputs[name] for name in tensors if name in inputs}
        wanted = [name for name in tensors if name not in result]
        if not wanted:
            return result
        needed = self._needed(inputs, wanted)
        shapes = {name: inputs[name].shape for name in needed}
        try:
            options = ImportOptions(inputs=needed, outputs=wanted, shapes=shapes)
            graph = load_onnx(self.original, options)
            return result | self._run(graph, {v.name: inputs[v.name] for v in graph.inputs})
        except IntaglioError:
            if intended:  # the comparison would only inform
                return result
            raise

    def _needed(self, given: Feeds, wanted: list[str]) -> list[str]:
        """Those of the given tensors that the wanted ones depend on."""
        made_by = {o: n for n in self.original.proto.graph.node for o in n.output}
        seen: set[str] = set()
        stack = list(wanted)
        while stack:
            name = stack.pop()
            if name in seen:
                continue
            seen.add(name)
            if name not in given and name in made_by:
                stack += reads(made_by[name])
        return [name for name in given if name in seen]


def _difference(
    name: str, got: Array, view: View | None, want: Mapping[str, Array], intended: bool
) -> OutputCheck:
    if view is None or view.tensor not in want:
        return OutputCheck(name, view.tensor if view else None, True, None)
    expected = want[view.tensor]
    try:
        expected = view.forward(expected)
    except IntaglioError:
        if not intended:
            raise
    if intended and (expected.shape != got.shape or expected.dtype != got.dtype):
        return OutputCheck(name, view.tensor, True, None)
    (d,) = agreement.differences({name: expected}, {name: got}, LIMIT)
    found = float(d.error) if np.isfinite(d.error) else np.inf
    return OutputCheck(name, view.tensor, intended, found)


def _worse(known: list[OutputCheck], new: list[OutputCheck]) -> list[OutputCheck]:
    """The larger difference of each output, over all runs."""
    if not known:
        return new
    pairs = zip(known, new, strict=True)
    return [a if (a.difference or 0) >= (b.difference or 0) else b for a, b in pairs]
