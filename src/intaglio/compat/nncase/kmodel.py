"""The bytes of a kmodel: a file of the K210, or a package of Intaglio."""

from __future__ import annotations

from typing import Any, Protocol

import intaglio
from intaglio.compat.nncase.k210_model import K210Model
from intaglio.errors import BadFile, BadInput
from intaglio.ir import Array, Type
from intaglio.package import Package
from intaglio.package.format import MAGIC

KMODEL = b"LDMK"  # begins kmodels of nncase 1.x and 2.x
OLD_KMODEL = b"\3\0\0\0"


class Model(Protocol):
    """A model that runs: its inputs and outputs by name, in order."""

    inputs: dict[str, Type]
    outputs: dict[str, Type]

    def run(self, feeds: dict[str, Array]) -> dict[str, Array]:
        """The outputs of one inference."""


def load(data: Any) -> Model:
    """The model in a file's bytes; BadFile says what else they are."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise BadInput(
            f"the model is {type(data).__name__}; give the content of a kmodel: "
            "open(path, 'rb').read()"
        )
    data = bytes(data)
    if data[:4] == MAGIC:
        return PackageModel(Package(data))
    if data[:4] in (KMODEL, OLD_KMODEL):
        return K210Model(data)
    if not data:
        raise BadFile("the kmodel is empty; was it written completely?")
    raise BadFile(
        f"this is no kmodel: it begins with {data[:4].hex()}; give what gencode_tobytes() returned"
    )


class PackageModel:
    """A package of Intaglio."""

    def __init__(self, package: Package):
        self.package = package
        self.session = intaglio.open(package)
        self.inputs = dict(self.session.inputs)
        self.outputs = dict(self.session.outputs)

    def run(self, feeds: dict[str, Array]) -> dict[str, Array]:
        return dict(self.session.run(feeds))
