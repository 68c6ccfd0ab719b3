"""onnxruntime's exceptions. Here each is an error of Intaglio too.

Where onnxruntime raises one of Python's own exceptions (a ValueError for a missing input), the
class derives from that exception as well.
"""

from __future__ import annotations

from intaglio.errors import BadFile, BadInput, IntaglioError, RunError, Unsupported


class Fail(IntaglioError):
    """The model cannot be compiled or run."""


class InvalidArgument(BadInput):
    """A name, shape, element type or option is wrong."""


class NoSuchFile(BadFile):
    """There is no file of this name."""


class NoModel(BadInput):
    """There is no model; never raised here."""


class EngineError(IntaglioError):
    """Never raised here."""


class RuntimeException(RunError):
    """Never raised here; Fail is."""


class InvalidProtobuf(BadFile):
    """The file or the bytes are not an ONNX model."""


class ModelLoaded(BadInput):
    """Never raised here."""


class NotImplemented(Unsupported):
    """The model, or the caller, asks for something that Intaglio does not do."""


class InvalidGraph(BadFile):
    """The model has an operator that ONNX does not define."""


class EPFail(Fail):
    """Never raised here: there is one execution provider, the CPU."""


class NotFound(InvalidArgument):
    """Never raised here."""


class ModelLoadCanceled(Fail):
    """Never raised here."""


class ModelRequiresCompilation(Fail):
    """Never raised here."""


class DeviceReset(Fail):
    """Never raised here."""


class FailedNode(Fail, BadInput):
    """A node does not fit the shapes or types of its inputs."""


class FailedRun(Fail, RunError):
    """A running model met data that it cannot compute with."""


class MissingInput(InvalidArgument, ValueError):
    """A required input is missing."""


class WrongType(InvalidArgument, TypeError):
    """An argument has a wrong type."""


class BadValue(InvalidArgument, RuntimeError):
    """An array, a buffer, a device or an entry cannot be used."""


def unsupported(words: str) -> NotImplemented:
    """The exception for something that Intaglio does not do."""
    return NotImplemented(words)


def translated(error: IntaglioError) -> IntaglioError:
    """An error of Intaglio as the exception that onnxruntime raises in its place."""
    words = str(error)
    if type(error).__module__ == __name__:
        return error
    if isinstance(error, Unsupported):
        return NotImplemented(words)
    if isinstance(error, RunError):
        return FailedRun(words)
    if isinstance(error, BadInput):
        kind = FailedNode if words.startswith("onnx: node ") else InvalidArgument
        return kind(words)
    return Fail(words)
