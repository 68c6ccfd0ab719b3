"""The native module of nncase's runtime."""

from __future__ import annotations

from intaglio.compat.nncaseruntime import Interpreter as Interpreter
from intaglio.compat.nncaseruntime import MemoryRange as MemoryRange
from intaglio.compat.nncaseruntime import RuntimeTensor as RuntimeTensor
from intaglio.compat.nncaseruntime import TensorDesc as TensorDesc
from intaglio.compat.nncaseruntime import __version__ as __version__
