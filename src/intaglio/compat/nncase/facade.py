"""What docs/compat-nncase.md lists."""

from __future__ import annotations

from typing import Any

from intaglio.compat import nncase, nncase_runtime
from intaglio.compat.conformance import Facade
from intaglio.compat.nncase import ncc
from intaglio.compat.nncase.options import COMPILE, PTQ

HEAD = f"""\
Scripts for nncase run with `python -m intaglio.compat script.py`. Classes, attributes and defaults
are those of version {nncase.__version__}; what only 1.x has is there too. The names `nncase`,
`_nncase`, `nncaseruntime` and `nncase_runtime` (CanMV) are Intaglio's own in that process.
[Migration](migrate-nncase.md) explains what changes for you.

- A mistake is an exception of one line that says what to do. It is a `RuntimeError`. The process
  lives on.
- Targets are `cpu`, `k230`, `k510` and `k210`. `Simulator` runs the chip's integer arithmetic as
  Intaglio models it, bit for bit that of the KPU for `k210`.
- `gencode` writes a real kmodel of version 5 for `k210`, if the KPU runs the whole quantised model.
  Anything else becomes a package of Intaglio under your name, which a board cannot run: the
  commands of the K230 and K510 are not public. A warning says why.
- Kmodels that nncase 1.x wrote for the K210 are read and simulated. Kmodels of other chips are
  refused."""


def _shown(table: dict[str, tuple[Any, str]]) -> dict[str, tuple[str, str]]:
    return {name: (repr(default), effect) for name, (default, effect) in table.items()}


def facade() -> Facade:
    """Classes, functions and attributes of nncase."""
    return Facade(
        "nncase: what is supported",
        HEAD,
        {
            "nncase.CompileOptions": nncase.CompileOptions,
            "nncase.ImportOptions": nncase.ImportOptions,
            "nncase.PTQTensorOptions": nncase.PTQTensorOptions,
            "nncase.ShapeBucketOptions": nncase.ShapeBucketOptions,
            "nncase.DumpRangeTensorOptions": nncase.DumpRangeTensorOptions,
            "nncase.Compiler": nncase.Compiler,
            "nncase.GraphEvaluator": nncase.GraphEvaluator,
            "nncase.Simulator": nncase.Simulator,
            "nncase.RuntimeTensor": nncase.RuntimeTensor,
            "nncase.MemoryRange": nncase.MemoryRange,
            "nncaseruntime.Interpreter": nncase.Interpreter,
            "nncase_runtime.kpu": nncase_runtime.kpu,
            "nncase_runtime.ai2d": nncase_runtime.ai2d,
        },
        {
            "nncase.check_target": nncase.check_target,
            "nncase.test_target": nncase.test_target,
            "nncase_runtime.from_numpy": nncase_runtime.from_numpy,
            "nncase_runtime.shrink_memory_pool": nncase_runtime.shrink_memory_pool,
            "ncc": ncc.main,
        },
        attributes={"CompileOptions": _shown(COMPILE), "PTQTensorOptions": _shown(PTQ)},
    )
