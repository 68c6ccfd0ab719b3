"""Intaglio: a neural-network compiler and inference runtime.

package = intaglio.compile("model.onnx")           # for this machine's CPU
package.save("model.itg")
with intaglio.open("model.itg") as session:
    outputs = session.run({"input": array})        # {name: array}
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from intaglio.startup import end_quietly_on_interrupt

end_quietly_on_interrupt()  # before numpy is imported, which takes most of the time

# Imported eagerly, because these functions must replace the modules of the same names.
from intaglio.edit import edit as edit  # noqa: E402
from intaglio.interpret import interpret as interpret  # noqa: E402

if TYPE_CHECKING:
    from intaglio.analysis.compare import compare as compare
    from intaglio.analysis.report import report as report
    from intaglio.analysis.stats import stats as stats
    from intaglio.compile_options import CompileOptions as CompileOptions
    from intaglio.compiler import compile as compile
    from intaglio.compiler import optimize as optimize
    from intaglio.errors import BadFile as BadFile
    from intaglio.errors import BadInput as BadInput
    from intaglio.errors import BadKey as BadKey
    from intaglio.errors import IntaglioError as IntaglioError
    from intaglio.errors import QueueFull as QueueFull
    from intaglio.errors import RunError as RunError
    from intaglio.errors import Unsupported as Unsupported
    from intaglio.evaluation.evaluate import evaluate as evaluate
    from intaglio.export.deploy import deploy as deploy
    from intaglio.export.onnx import save_onnx as save_onnx
    from intaglio.export.onnx import to_onnx as to_onnx
    from intaglio.frontends import load as load
    from intaglio.internal_memory import InternalMemory as InternalMemory
    from intaglio.ir import Graph as Graph
    from intaglio.matmul import Matmul as Matmul
    from intaglio.open_session import open as open
    from intaglio.package import Package as Package
    from intaglio.quant import quantize as quantize
    from intaglio.session import Session as Session
    from intaglio.session_pool import SessionPool as SessionPool
    from intaglio.thread_pool import ThreadPool as ThreadPool

__version__ = "0.1.0"

# Public name -> its module, which is imported at first use, so that `import intaglio` is fast.
_LAZY = {
    "load": "intaglio.frontends",
    "optimize": "intaglio.compiler",
    "compile": "intaglio.compiler",
    "CompileOptions": "intaglio.compile_options",
    "deploy": "intaglio.export.deploy",
    "compare": "intaglio.analysis.compare",
    "stats": "intaglio.analysis.stats",
    "report": "intaglio.analysis.report",
    "evaluate": "intaglio.evaluation.evaluate",
    "to_onnx": "intaglio.export.onnx",
    "save_onnx": "intaglio.export.onnx",
    "Graph": "intaglio.ir",
    "Matmul": "intaglio.matmul",
    "Package": "intaglio.package",
    "quantize": "intaglio.quant",
    "Session": "intaglio.session",
    "open": "intaglio.open_session",
    "SessionPool": "intaglio.session_pool",
    "ThreadPool": "intaglio.thread_pool",
    "InternalMemory": "intaglio.internal_memory",
    "IntaglioError": "intaglio.errors",
    "BadInput": "intaglio.errors",
    "BadFile": "intaglio.errors",
    "BadKey": "intaglio.errors",
    "Unsupported": "intaglio.errors",
    "RunError": "intaglio.errors",
    "QueueFull": "intaglio.errors",
}
__all__ = ["edit", "interpret", *_LAZY]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'intaglio' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
