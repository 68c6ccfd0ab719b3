"""The native module of nncase: its version, types and names of options."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from pathlib import Path as Path

from intaglio.compat.nncase import CompileOptions as CompileOptions
from intaglio.compat.nncase import Compiler as Compiler
from intaglio.compat.nncase import GraphEvaluator as GraphEvaluator
from intaglio.compat.nncase import ImportOptions as ImportOptions
from intaglio.compat.nncase import MemoryRange as MemoryRange
from intaglio.compat.nncase import PTQTensorOptions as PTQTensorOptions
from intaglio.compat.nncase import RuntimeTensor as RuntimeTensor
from intaglio.compat.nncase import ShapeBucketOptions as ShapeBucketOptions
from intaglio.compat.nncase import Simulator as Simulator
from intaglio.compat.nncase import TensorDesc as TensorDesc
from intaglio.compat.nncase import __version__ as __version__
from intaglio.compat.nncase import test_target as test_target


class QuantType(IntEnum):
    """Types of activations and weights."""

    Uint8 = 0
    Int8 = 1
    Int16 = 2


class ModelQuantMode(IntEnum):
    """How a model is quantised."""

    NoQuant = 0
    UsePTQ = 1
    UseQAT = 2


class CalibMethod(IntEnum):
    """How ranges follow from samples."""

    NoClip = 0
    Kld = 1


class FineTuneWeightsMethod(IntEnum):
    """How weights are rounded."""

    NoFineTuneWeights = 0
    UseSquant = 1
    UseAdaRound = 2


class InputType(IntEnum):
    """Types of inputs."""

    Uint8 = 0
    Int8 = 1
    Float32 = 2


class DumpFlags(IntFlag):
    """What is written to dump_dir."""

    Nothing = 0
    ImportOps = 2
    PassIR = 4
    EGraphCost = 8
    Rewrite = 16
    Calibration = 32
    Evaluator = 64
    Compile = 128
    Tiling = 256
    Schedule = 512
    CodeGen = 1024


class Target:
    """A target by its name."""

    def __init__(self, name: str):
        self.name = name

    @staticmethod
    def exists(name: str) -> bool:
        """Whether models can be compiled for it."""
        return test_target(name)


def initialize(path: str = "") -> None:
    """Accepted: there is no .NET runtime to start."""
