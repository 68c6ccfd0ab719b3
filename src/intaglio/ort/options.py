"""Options of sessions and runs, as onnxruntime names them."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, ClassVar

from intaglio.arguments import described
from intaglio.ir import Array
from intaglio.ort.errors import BadValue, InvalidArgument, WrongType, unsupported
from intaglio.ort.values import OrtValue


class GraphOptimizationLevel(enum.IntEnum):
    """How much a model is optimised: levels 0, 1, 2, 3 and 3 of `intaglio.compile`."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99

    @property
    def level(self) -> int:
        """The level of `intaglio.compile`."""
        return min(int(self), 3)


class ExecutionMode(enum.IntEnum):
    """Whether branches of a model run at the same time; here steps share their threads instead."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
    """The order of steps; here the compiler decides it."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class _Options:
    """Attributes with a fixed set of names and types, and configuration entries."""

    _defaults: ClassVar[dict[str, Any]] = {}
    _entries: dict[str, str]

    def __init__(self) -> None:
        self.__dict__.update(self._defaults)
        self.__dict__["_entries"] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        kind = type(self).__name__
        if name not in self._defaults:
            known = ", ".join(self._defaults)
            raise AttributeError(f"{kind} has no attribute '{name}'; it has {known}")
        want = type(self._defaults[name])
        try:
            if isinstance(value, want) and not (want is int and isinstance(value, bool)):
                self.__dict__[name] = value
                return
            if issubclass(want, enum.IntEnum) and isinstance(value, int):
                self.__dict__[name] = want(value)
                return
        except ValueError:
            pass
        shown = list(want.__members__) if issubclass(want, enum.IntEnum) else want.__name__
        raise WrongType(f"{kind}.{name} is {described(value)}; give {_one_of(shown)}")

    def _add_entry(self, key: str, value: str) -> None:
        if not (isinstance(key, str) and key and isinstance(value, str)):
            raise WrongType(
                f"the entry {key!r}: {value!r} is not a pair of strings; give both as strings"
            )
        self._entries[key] = value

    def _entry(self, key: str) -> str:
        if key not in self._entries:
            raise BadValue(f"{type(self).__name__} has no entry '{key}'; add it first")
        return self._entries[key]


def _one_of(shown: Any) -> str:
    return f"one of {', '.join(shown)}" if isinstance(shown, list) else f"a value of type {shown}"


class SessionOptions(_Options):
    """Options of a session. docs/ort.md lists those that are honoured and those without meaning."""

    _defaults: ClassVar[dict[str, Any]] = {
        "enable_cpu_mem_arena": True,
        "enable_mem_pattern": True,
        "enable_mem_reuse": True,
        "enable_profiling": False,
        "execution_mode": ExecutionMode.ORT_SEQUENTIAL,
        "execution_order": ExecutionOrder.DEFAULT,
        "graph_optimization_level": GraphOptimizationLevel.ORT_ENABLE_ALL,
        "inter_op_num_threads": 0,
        "intra_op_num_threads": 0,
        "log_severity_level": -1,
        "log_verbosity_level": 0,
        "logid": "",
        "optimized_model_filepath": "",
        "profile_file_prefix": "onnxruntime_profile_",
        "use_deterministic_compute": False,
        "use_per_session_threads": True,
    }
    intra_op_num_threads: int
    enable_profiling: bool
    graph_optimization_level: GraphOptimizationLevel
    optimized_model_filepath: str
    profile_file_prefix: str
    dims: dict[str, int]  # overridden free dimensions, by name
    denotations: dict[str, int]  # ... and by denotation
    initializers: dict[str, Array]

    def __init__(self) -> None:
        super().__init__()
        self.__dict__.update(dims={}, denotations={}, initializers={})

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keep an entry; none has a meaning here."""
        self._add_entry(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """The entry that was added with this key."""
        return self._entry(key)

    def add_free_dimension_override_by_name(self, name: str, extent: int) -> None:
        """Bind an open dimension; a name that the model does not have is ignored."""
        self.dims[name] = _extent(name, extent)

    def add_free_dimension_override_by_denotation(self, denotation: str, extent: int) -> None:
        """Bind all open dimensions with this denotation."""
        self.denotations[denotation] = _extent(denotation, extent)

    def add_initializer(self, name: str, value: OrtValue) -> None:
        """Replace an initialiser of the model."""
        if not isinstance(value, OrtValue):
            raise WrongType(f"initializer '{name}' is {described(value)}; give an OrtValue")
        self.initializers[name] = value.numpy()

    def add_external_initializers(self, names: Sequence[str], values: Sequence[OrtValue]) -> None:
        """Replace initialisers of the model, also those that are stored in other files."""
        if len(names) != len(values):
            raise InvalidArgument(
                f"{len(names)} names and {len(values)} values are given; give a value for each name"
            )
        for name, value in zip(names, values, strict=True):
            self.add_initializer(name, value)

    def register_custom_ops_library(self, path: str) -> None:
        """Refused: onnxruntime's operator libraries need onnxruntime."""
        raise unsupported(
            f"'{path}' is a library of operators for onnxruntime, whose kernels only it can call; "
            "register the operator with intaglio.custom (docs/custom-operators.md)"
        )

    def has_providers(self) -> bool:
        """Whether execution providers were added to the options; they never are."""
        return False


def _extent(name: str, extent: Any) -> int:
    if isinstance(extent, bool) or not isinstance(extent, int) or not isinstance(name, str):
        raise WrongType(
            f"dimension {name!r} is {described(extent)}; give a name and a whole number"
        )
    return extent


class RunOptions(_Options):
    """Options of one run: `terminate` is honoured before the run, all others have no meaning."""

    _defaults: ClassVar[dict[str, Any]] = {
        "log_severity_level": -1,
        "log_verbosity_level": 0,
        "logid": "",
        "only_execute_path_to_fetches": False,
        "terminate": False,
    }
    terminate: bool

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keep an entry; none has a meaning here."""
        self._add_entry(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """The entry that was added with this key."""
        return self._entry(key)
