"""The Python API of nncase 2.x, with that of 1.x where it differs."""

from __future__ import annotations

from intaglio.compat.distributions import NNCASE
from intaglio.compat.nncase.compiler import Compiler as Compiler
from intaglio.compat.nncase.compiler import IRModule as IRModule
from intaglio.compat.nncase.evaluator import GraphEvaluator as GraphEvaluator
from intaglio.compat.nncase.options import CompileOptions as CompileOptions
from intaglio.compat.nncase.options import DumpRangeTensorOptions as DumpRangeTensorOptions
from intaglio.compat.nncase.options import ImportOptions as ImportOptions
from intaglio.compat.nncase.options import PTQTensorOptions as PTQTensorOptions
from intaglio.compat.nncase.options import ShapeBucketOptions as ShapeBucketOptions
from intaglio.compat.nncase.runtime_tensor import MemoryRange as MemoryRange
from intaglio.compat.nncase.runtime_tensor import RuntimeTensor as RuntimeTensor
from intaglio.compat.nncase.settings import TARGETS
from intaglio.compat.nncase.simulator import Interpreter as Interpreter
from intaglio.compat.nncase.simulator import Simulator as Simulator

__version__ = NNCASE
TensorDesc = MemoryRange


class CalibMethod:
    """Names of calibration methods."""

    NoClip = 0
    Kld = 1
    Random = 2


class ModelQuantMode:
    """Names of quantisation modes."""

    NoQuant = 0
    UsePTQ = 1
    UseQAT = 2


def check_target(target: str) -> bool:
    """Whether models can be compiled for a target."""
    return isinstance(target, str) and target.lower() in TARGETS


def test_target(target: str) -> bool:
    """`check_target` by its name in nncase 1.x."""
    return check_target(target)


test_target.__test__ = False  # type: ignore[attr-defined]  # pytest takes it for a test
