"""nncase's runtime for Python: an Interpreter, its tensors, and the K230's AI2D."""

from __future__ import annotations

from intaglio.compat.nncase import Interpreter as Interpreter
from intaglio.compat.nncase import MemoryRange as MemoryRange
from intaglio.compat.nncase import RuntimeTensor as RuntimeTensor
from intaglio.compat.nncase import TensorDesc as TensorDesc
from intaglio.compat.nncase import __version__ as __version__
from intaglio.compat.nncase.ai2d import AI2D as AI2D
from intaglio.compat.nncase.ai2d_pixels import Format, Method, Mode, PadMode

interpreter = Interpreter
from_numpy = RuntimeTensor.from_numpy
AI2D_FORMAT, AI2D_PAD_MODE = Format, PadMode
AI2D_INTERP_METHOD, AI2D_INTERP_MODE = Method, Mode
