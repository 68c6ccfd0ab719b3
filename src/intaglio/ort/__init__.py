"""A look-alike of onnxruntime's Python API: `import intaglio.ort as ort`.

session = ort.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
outputs = session.run(None, {session.get_inputs()[0].name: array})

docs/ort.md lists what differs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from intaglio import __version__
from intaglio.ort import errors
from intaglio.ort.errors import (
    EngineError,
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    ModelLoaded,
    NoModel,
    NoSuchFile,
    NotImplemented,
    RuntimeException,
)
from intaglio.ort.options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from intaglio.ort.providers import CPU
from intaglio.ort.values import OrtDevice, OrtValue

if TYPE_CHECKING:
    from intaglio.ort.binding import IOBinding
    from intaglio.ort.node_args import ModelMetadata, NodeArg
    from intaglio.ort.session import InferenceSession

# Name -> its module, which is imported at first use, so that `import intaglio.ort` is fast.
_LAZY = {
    "InferenceSession": "intaglio.ort.session",
    "IOBinding": "intaglio.ort.binding",
    "ModelMetadata": "intaglio.ort.node_args",
    "NodeArg": "intaglio.ort.node_args",
}

__all__ = [
    "EPFail",
    "EngineError",
    "ExecutionMode",
    "ExecutionOrder",
    "Fail",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "ModelLoaded",
    "ModelMetadata",
    "NoModel",
    "NoSuchFile",
    "NodeArg",
    "NotImplemented",
    "OrtDevice",
    "OrtValue",
    "RunOptions",
    "RuntimeException",
    "SessionOptions",
    "__version__",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"intaglio.ort has no '{name}'; docs/ort.md lists what it has")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def get_device() -> str:
    """The device that models run on: "CPU"."""
    return "CPU"


def get_available_providers() -> list[str]:
    """The execution providers: ["CPUExecutionProvider"]."""
    return [CPU]


def get_all_providers() -> list[str]:
    """The execution providers: ["CPUExecutionProvider"]."""
    return [CPU]


def get_version_string() -> str:
    """Intaglio's version."""
    return __version__


def get_build_info() -> str:
    """What computes: Intaglio's version."""
    return f"intaglio {__version__}"


def set_default_logger_severity(severity: int) -> None:
    """Check the severity; nothing is logged: Intaglio warns by Python's `warnings`."""
    if isinstance(severity, bool) or severity not in range(5):
        raise errors.BadValue(f"severity is {severity!r}; give a whole number from 0 to 4")


def set_default_logger_verbosity(verbosity: int) -> None:
    """Without meaning: nothing is logged."""


def set_seed(seed: int) -> None:
    """Without meaning: random operators are not supported."""


def enable_telemetry_events() -> None:
    """Without meaning: nothing is sent."""


def disable_telemetry_events() -> None:
    """Without meaning: nothing is sent."""
