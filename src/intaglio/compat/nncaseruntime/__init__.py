"""nncase's runtime for Python: an Interpreter and its tensors."""

from __future__ import annotations

from intaglio.compat.nncase import Interpreter as Interpreter
from intaglio.compat.nncase import MemoryRange as MemoryRange
from intaglio.compat.nncase import RuntimeTensor as RuntimeTensor
from intaglio.compat.nncase import TensorDesc as TensorDesc
from intaglio.compat.nncase import __version__ as __version__

interpreter = Interpreter
from_numpy = RuntimeTensor.from_numpy
