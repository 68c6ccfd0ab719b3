"""Names of vendors' packages as aliases of modules in this package, by meta-path finders."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from intaglio.compat import distributions
from intaglio.errors import BadInput

ALIASES = (  # packages of vendors; each is intaglio.compat.NAME
    "rknn",
    "rknnlite",
    "nncase",
    "_nncase",
    "nncaseruntime",
    "_nncaseruntime",
    "nncase_runtime",
)
# Modules that vendors' examples import, and what stands in for them where they are not installed.
MISSING = {
    "onnxsim": "intaglio.compat.missing.onnxsim",
    "onnx.mapping": "intaglio.compat.missing.onnx_mapping",
    "tools": "intaglio.compat.missing.tools",
    "tools.model_runner": "intaglio.compat.missing.model_runner",
    "utils": "intaglio.compat.missing.tools",
    "utils.preprocess": "intaglio.compat.missing.pixel_formats",
}
OLD_ONNX = ("nncase",)  # packages whose examples use `onnx.mapping` as an attribute


def real_name(name: str) -> str | None:
    """The module behind the name of a vendor's module; None if the name is not an alias."""
    return f"intaglio.compat.{name}" if name.partition(".")[0] in ALIASES else None


class AliasLoader(Loader):
    """Gives the real module under another name."""

    def __init__(self, real: str):
        self.real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.real)
        self.spec = module.__spec__  # the import system overwrites it
        if spec.name in OLD_ONNX and importlib.util.find_spec("onnx") is not None:
            importlib.import_module("onnx.mapping")
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec


class AliasFinder(MetaPathFinder):
    """Finds modules whose first name is in ALIASES."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        real = real_name(fullname)
        if real is None or importlib.util.find_spec(real) is None:
            return None
        return ModuleSpec(fullname, AliasLoader(real), is_package=True)


class MissingFinder(MetaPathFinder):
    """Finds the modules of MISSING; it is asked last, so that installed ones are preferred."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        real = MISSING.get(fullname)
        if real is None:
            return None
        package = any(n.startswith(f"{fullname}.") for n in MISSING)
        return ModuleSpec(fullname, AliasLoader(real), is_package=package)


_FINDER, _LAST = AliasFinder(), MissingFinder()


def install() -> None:
    """Let `import rknn`, `import nncase` and the like mean modules of this package, here.

    BadInput if a module of that name was imported already.
    """
    if _FINDER in sys.meta_path:
        return
    for name in ALIASES:
        if name in sys.modules:
            place = getattr(sys.modules[name], "__file__", None)
            raise BadInput(
                f"'{name}' is imported already, from {place}; "
                "call intaglio.compat.install() before the first import of it"
            )
    sys.meta_path.insert(0, _FINDER)
    sys.meta_path.append(_LAST)
    distributions.announce()


def uninstall() -> None:
    """Undo `install`; modules that were imported stay in use where they are."""
    distributions.withdraw()
    for finder in (_FINDER, _LAST):
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
    for name in [n for n in sys.modules if real_name(n)]:
        del sys.modules[name]
    for name, real in MISSING.items():
        if name in sys.modules and sys.modules[name] is sys.modules.get(real):
            del sys.modules[name]
