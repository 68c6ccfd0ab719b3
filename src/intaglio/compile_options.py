"""The options of `intaglio.compile`: one object that the API and the command line share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intaglio import cpu_isa
from intaglio.arguments import described, file_path, list_of_names, whole_number
from intaglio.errors import BadInput, option
from intaglio.frontends.ranges import parse_range
from intaglio.targets import known_precision

if TYPE_CHECKING:
    from intaglio.tune import Tuning

NPU_CODES = ("auto", "chip", "own")
LEVELS = {0: "none", 1: "exact", 2: "may reassociate floats", 3: "for the target"}

Progress = Callable[[str], None]  # called with the name of each stage as it starts


@dataclass(frozen=True, kw_only=True)
class CompileOptions:
    """Options of `intaglio.compile` and `intaglio.compiler.trace`, checked when they are made."""

    # Instruction set of the CPU that runs the package, e.g. "avx512-vnni"; None: this CPU's.
    isa: str | int | None = None
    # Optimisation level, one of LEVELS.
    level: int = 3
    # Type of float layers. "bf16": products in bf16, sums in f32. "f16": weights and tensors are
    # stored in f16 and computed in f32; NPUs that have f16 compute in it. None: f32.
    precision: str | None = None
    # Names of rewrite rules that must not fire (docs/rules.md lists them).
    disable: Collection[str] = ()
    # Whether to time the alternatives for each layer on this machine and keep the fastest. A Tuning
    # sets the time limit and the number of threads. Times are cached on disk.
    tune: bool | Tuning = False
    # Number of images that the package takes at once, its range ("1..8"), or a list of numbers, of
    # which each gets a plan ([1, 4, 8]), for a model that is made for one image or leaves its batch
    # open. None: as the model says.
    batch: int | str | Sequence[int] | None = None
    # Number of NPU cores that share the work.
    cores: int = 1
    # Whether each layer becomes an NPU program of its own.
    by_layer: bool = False
    # What NPU parts become: "chip", files of the chip (cv181x, cv180x, bm1684x, bm1688), which the
    # chip and our simulators run; "own", programs of Intaglio's instruction set, which only our
    # simulator runs; "auto", "chip" for these four unless `cores` or `by_layer` are given.
    npu_code: str = "auto"
    # Whether to leave names of internal tensors and reports out of the package.
    strip: bool = False
    # Folder that receives the graph as text after every pass.
    dump_dir: str | Path | None = None
    # Function that is called with the name of each stage.
    progress: Progress | None = None

    def __post_init__(self) -> None:
        if isinstance(self.level, bool | float) or self.level not in LEVELS:
            known = ", ".join(f"{k} ({v})" for k, v in LEVELS.items())
            raise BadInput(f"level is {self.level!r}; it is one of {known}")
        list_of_names("disable", self.disable)
        whole_number("cores", self.cores, 1)
        if self.npu_code not in NPU_CODES:
            raise BadInput(f"npu_code is {self.npu_code!r}; it is one of {', '.join(NPU_CODES)}")
        if isinstance(self.batch, str):
            parse_range("batch", self.batch)
        elif isinstance(self.batch, list | tuple):
            if not self.batch:
                raise BadInput("batch is an empty list; give at least one number of images")
            numbers = {whole_number("batch", n, 1) for n in self.batch}
            object.__setattr__(self, "batch", tuple(sorted(numbers)))
        elif self.batch is not None:
            whole_number("batch", self.batch, 1)
        if self.precision is not None:
            object.__setattr__(self, "precision", known_precision(self.precision))
        if self.isa is not None and not isinstance(self.isa, str | int):
            known = cpu_isa.EXAMPLES
            raise BadInput(f"isa is {described(self.isa)}; give a name; known are {known}")
        if self.progress is not None and not callable(self.progress):
            raise BadInput(f"progress is {described(self.progress)}; give a function of one string")
        if self.dump_dir is not None:
            file_path(option("dump_dir"), self.dump_dir, 'the path of a folder, such as "dump"')
        self._check_flags()

    def _check_flags(self) -> None:
        for name in ("by_layer", "strip"):
            if not isinstance(getattr(self, name), bool):
                given = described(getattr(self, name))
                raise BadInput(f"{name} is {given}; give True or False")
        if not isinstance(self.tune, bool | None) and type(self.tune).__name__ != "Tuning":
            raise BadInput(
                f"tune is {described(self.tune)}; give True, False or an intaglio.tune.Tuning"
            )


OPTION_NAMES = tuple(f.name for f in fields(CompileOptions))


def split_options(
    given: dict[str, Any], options: CompileOptions | None = None
) -> tuple[CompileOptions, dict[str, Any]]:
    """`options` with the compile options among `given` replaced, and the other keywords."""
    if options is not None and not isinstance(options, CompileOptions):
        raise BadInput(
            f"options is {described(options)}; give an intaglio.CompileOptions, or its fields as "
            "keywords"
        )
    mine = {name: given[name] for name in given if name in OPTION_NAMES}
    others = {k: v for k, v in given.items() if k not in OPTION_NAMES}
    return replace(options or CompileOptions(), **mine), others
