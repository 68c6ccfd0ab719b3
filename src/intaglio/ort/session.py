"""InferenceSession: a model that runs, with onnxruntime's methods."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.arguments import described
from intaglio.errors import BadInput, IntaglioError, did_you_mean
from intaglio.ir import Array
from intaglio.model_session import ModelSession
from intaglio.ort import node_args
from intaglio.ort.binding import IOBinding
from intaglio.ort.errors import (
    BadValue,
    Fail,
    InvalidArgument,
    MissingInput,
    WrongType,
    translated,
    unsupported,
)
from intaglio.ort.node_args import ModelMetadata, NodeArg
from intaglio.ort.opening import open_model
from intaglio.ort.options import RunOptions, SessionOptions
from intaglio.ort.profile import Profile
from intaglio.ort.providers import CPU, warn_of_providers
from intaglio.ort.values import OrtValue

Callback = Callable[[list[Array], Any, str], Any]


class InferenceSession:
    """A model that is ready to run: `InferenceSession("model.onnx").run(None, {"x": array})`.

    The model is the path of a file, bytes or a ModelProto. A model whose shapes are fixed is
    compiled now, others when their first inputs come, for each shape. Further keywords are those of
    `intaglio.Session`: `precision`, `keep`, `cache`, `background`, `outputs` and others.
    """

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **keywords: Any,
    ):
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise WrongType(f"sess_options is {described(sess_options)}; give SessionOptions")
        self._options = sess_options or SessionOptions()
        warn_of_providers(providers, provider_options)
        self._profile: Profile | None = None
        began = time.perf_counter_ns()
        if self._options.enable_profiling:
            self._profile = Profile(self._options.profile_file_prefix)
        opened = open_model(path_or_bytes, self._options, keywords)
        self._session, self._onnx, self._dims = opened.session, opened.onnx, opened.dims or {}
        self._worker = ThreadPoolExecutor(1, "intaglio-ort")  # its thread starts when it is used
        if self._profile is not None:
            self._profile.add("session_initialization", began)
        self._describe()

    def _describe(self) -> None:
        """Collect names and types of inputs and outputs."""
        session, model = self._session, self._onnx
        if model is None or not isinstance(session, ModelSession):
            self._inputs = node_args.of_types(session.inputs)
            self._outputs = node_args.of_types(session.outputs)
            self._overridable: list[NodeArg] = []
        else:
            source = session.model_inputs
            required = {*(source.types or {}), *source.unranked}
            args = node_args.of_proto(model.proto.graph.input, self._dims)
            self._inputs = [a for a in args if a.name in required]
            self._overridable = [a for a in args if a.name in source.overridable]
            listed = node_args.of_proto(node_args.with_shapes(model.proto), self._dims)
            if source.keywords.get("outputs"):  # inner tensors may be among them
                known = {a.name: a for a in listed}
                listed = [known.get(n, NodeArg(n, "", [])) for n in source.output_names]
            self._outputs = listed
        self._input_names = [a.name for a in (*self._inputs, *self._overridable)]
        made = session.output_names
        self._missing = [a.name for a in self._outputs if a.name not in made]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"intaglio.ort.InferenceSession has no '{name}'; docs/ort.md lists what it has"
        )

    # ---- what the model is ---------------------------------------------------------------------
    def get_inputs(self) -> list[NodeArg]:
        """The inputs that every run needs."""
        return list(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, in the order of `run(None, ...)`."""
        if not self._outputs:  # of another format than ONNX: known after the first run
            return node_args.of_types(self._session.outputs)
        return list(self._outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Initialisers that a run may replace by an input of this name."""
        return list(self._overridable)

    @property
    def value_inputs(self) -> tuple[str, ...]:
        """The inputs whose values decide shapes, as far as known: each value is compiled for."""
        session = self._session
        return session.value_inputs if isinstance(session, ModelSession) else ()

    def get_modelmeta(self) -> ModelMetadata:
        """The metadata of the file."""
        if self._onnx is not None:
            return node_args.metadata_of_proto(self._onnx.proto)
        return node_args.metadata_of_package(self._session.meta)

    def get_session_options(self) -> SessionOptions:
        """The options that the session was made with."""
        return self._options

    def get_providers(self) -> list[str]:
        """The execution providers: the CPU."""
        return [CPU]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options of the execution providers: none."""
        return {CPU: {}}

    def set_providers(
        self,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Check the providers; the CPU runs the model, whichever are named."""
        warn_of_providers(providers, provider_options)

    def disable_fallback(self) -> None:
        """Without meaning: there is nothing to fall back to."""

    def enable_fallback(self) -> None:
        """Without meaning: there is nothing to fall back to."""

    # ---- running -------------------------------------------------------------------------------
    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Array]:
        """Run the model and return the outputs with these names; all for None or an empty list."""
        if run_options is not None:
            _check_run(run_options)
        profile, began = self._profile, 0
        if profile is not None:
            began = time.perf_counter_ns()
        try:
            results = self._session.run(input_feed)
        except IntaglioError as e:
            results = self._again(input_feed, e)
        if profile is not None:
            profile.add("model_run", began)
        if not output_names and not self._missing:
            return list(results.values())
        try:
            if type(output_names) is list:
                return [results[n] for n in output_names]
        except (KeyError, TypeError):
            pass
        return self._chosen(output_names, results)

    def _again(self, feed: Any, error: IntaglioError) -> dict[str, Array]:
        """Run once more if lists become arrays; otherwise raise the error in onnxruntime's way."""
        if not isinstance(feed, Mapping):
            raise WrongType(
                f"the inputs are {described(feed)}; give a dict from names to arrays"
            ) from None
        self._require_inputs(feed)
        lists = {n: a for n, a in feed.items() if isinstance(a, list | tuple)}
        if not isinstance(error, BadInput) or not lists:
            raise translated(error) from None
        try:
            return self._session.run({**feed, **self._as_arrays(lists)})
        except IntaglioError as e:
            raise translated(e) from None

    def _as_arrays(self, lists: Mapping[str, Any]) -> dict[str, Array]:
        """Lists of numbers as arrays of the types that the model takes."""
        types, arrays = self._session.inputs, {}
        for name, value in lists.items():
            want = dtypes.numpy_of(types[name].dtype) if name in types else None
            try:
                arrays[name] = np.asarray(value, want)
            except (ValueError, TypeError, OverflowError) as e:
                words = " ".join(str(e).split())
                raise BadValue(f"input '{name}' cannot be read as an array: {words}") from e
        return arrays

    def _require_inputs(self, feed: Mapping[str, Any]) -> None:
        if missing := [a.name for a in self._inputs if a.name not in feed]:
            raise MissingInput(
                f"required input '{missing[0]}' is missing; the feed has {list(feed)}, the model "
                f"needs {[a.name for a in self._inputs]}"
            ) from None

    def _chosen(self, names: Any, results: Mapping[str, Array]) -> list[Array]:
        if not names:
            names = [a.name for a in self._outputs]
        self._check_outputs(names)
        return [results[n] for n in names]

    def _check_outputs(self, names: Any) -> None:
        """Raise for names that are no outputs, or are outputs that hold strings."""
        if isinstance(names, str) or not all(isinstance(n, str) for n in names):
            raise WrongType(f"output_names is {described(names)}; give a list of names, or None")
        made = self._session.output_names
        for name in names:
            if name in self._missing:
                rest = [n for n in made if n not in self._missing]
                raise unsupported(
                    f"output '{name}' holds no tensor of numbers, which alone are supported; ask "
                    f"for the others: run({rest}, ...)"
                )
            if made and name not in made:
                raise InvalidArgument(
                    f"no output is called '{name}'; the model has {', '.join(made)}"
                    f"{did_you_mean(name, made)}"
                )

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """`run` with OrtValues instead of arrays."""
        feed = {n: v.numpy() for n, v in _values(input_dict_ort_values).items()}
        return [OrtValue(a) for a in self.run(output_names, feed, run_options)]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callback,
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Run in another thread, which then calls `callback(results, user_data, error)`.

        `error` is "" if the run succeeded; otherwise `results` is empty.
        """
        self._require_inputs(input_feed)
        if not callable(callback):
            raise WrongType(f"callback is {described(callback)}; give a function of 3 arguments")

        def work() -> None:
            results: list[Array] = []
            words = ""
            try:
                results = self.run(output_names, input_feed, run_options)
            except Exception as e:  # the callback gets it in words
                words = str(e) or type(e).__name__
            callback(results, user_data, words)

        self._worker.submit(work)

    # ---- io binding ----------------------------------------------------------------------------
    def io_binding(self) -> IOBinding:
        """Arrays that runs read and write in place."""
        return IOBinding(self)

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Run with the arrays that are bound."""
        if not isinstance(iobinding, IOBinding):
            raise WrongType(f"iobinding is {described(iobinding)}; give session.io_binding()")
        if run_options is not None:
            _check_run(run_options)
        iobinding.run()

    def _run_into(
        self, inputs: dict[str, Array], buffers: Mapping[str, Array]
    ) -> Mapping[str, Array]:
        """Run, and write outputs into these arrays; without a copy where that is possible."""
        try:
            return self._session.run(inputs, buffers)
        except BadInput:
            pass  # wrong, or the size of an output is known only afterwards
        try:
            names = [a.name for a in self.get_outputs() if a.name not in self._missing]
            results = dict(zip(names, self.run(names, inputs), strict=True))
        except IntaglioError as e:
            raise BadValue(str(e)) from None
        for name, array in buffers.items():
            made = results[name]
            if array.shape != made.shape or array.dtype != made.dtype or not array.flags.writeable:
                raise BadValue(
                    f"output '{name}' is {described(made)}, bound is {described(array)}; bind a "
                    "writable array of that type, or let the run make one: bind_output(name)"
                )
            array[...] = made
            results[name] = array
        return results

    # ---- profiling -----------------------------------------------------------------------------
    def end_profiling(self) -> str:
        """Write the times that were measured; returns the file's name, "" without profiling."""
        profile, self._profile = self._profile, None
        if profile is None:
            return ""
        session = self._session
        plans = session.profiles() if isinstance(session, ModelSession) else [session.profile()]
        return profile.write(plans)

    def get_profiling_start_time_ns(self) -> int:
        """When profiling began, by the clock that the profile uses; 0 without profiling."""
        return 0 if self._profile is None else self._profile.start_ns


def _check_run(options: Any) -> None:
    """Raise unless a run with these options may start."""
    if not isinstance(options, RunOptions):
        raise WrongType(f"run_options is {described(options)}; give RunOptions, or leave it out")
    if options.terminate:
        raise Fail("run_options.terminate is True: the run was stopped before it began")


def _values(given: Any) -> Mapping[str, OrtValue]:
    if not isinstance(given, Mapping):
        raise WrongType(f"the inputs are {described(given)}; give a dict from names to OrtValues")
    for name, value in given.items():
        if not isinstance(value, OrtValue):
            raise WrongType(f"input '{name}' is {described(value)}; give an OrtValue")
    return given
