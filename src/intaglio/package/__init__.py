"""The package file `.itg`: one flat file that the native runtime maps and runs."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from intaglio import cpu_isa, heap
from intaglio.arguments import described, file_path
from intaglio.errors import BadFile, BadInput, BadKey, option
from intaglio.files import write_atomically
from intaglio.ir import Array, Type
from intaglio.package.encryption import decrypt, encrypt
from intaglio.package.keys import KeySource, PublicKeySource
from intaglio.package.read import Contents, read
from intaglio.package.signing import Signature, sign, signature_of
from intaglio.package.stored import read_bytes as read_bytes
from intaglio.package.weight_join import WeightsSource, attach
from intaglio.package.weight_save import Paths, refuse_protected, separate
from intaglio.package.weight_split import WeightPlace, refilled
from intaglio.package.write import seal, write
from intaglio.plan import Plan, Tensor

Bytes = bytes  # Package has an attribute of this name

__all__ = ["Package", "read", "write"]


class Package:
    """A compiled model: the bytes of a `.itg` file and their contents."""

    def __init__(self, data: bytes | Array, sealed: bool = True):
        if not isinstance(data, bytes | bytearray | memoryview | np.ndarray):
            raise BadInput(
                f"Package takes the bytes of a package file, got {described(data)}; "
                "Package.load reads a file, intaglio.compile makes one"
            )
        self._data = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
        self.sealed = sealed  # before it is written, the checksum of the constants is missing
        # Of the file that it was loaded from: its signature, and its weight files.
        self.signature: Signature | None = None
        self.weight_files: list[WeightPlace] = []

    @classmethod
    def build(
        cls,
        plans: Sequence[Plan],
        *,
        isa: int = 0,
        meta: Mapping[str, Any] | None = None,
        strip: bool = False,
        arena: heap.Arena | None = None,
    ) -> Package:
        """Pack plans. `isa` holds the bits of the CPU that the weights are packed for.

        Weights made in `arena` are not copied if the arena holds little else.
        """
        return cls(write(plans, isa, meta, strip, arena), sealed=False)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        key: KeySource | None = None,
        public_key: PublicKeySource | None = None,
        weights: WeightsSource | None = None,
    ) -> Package:
        """Read a `.itg` file and its weight files; BadFile if it is not a valid package.

        `key` opens an encrypted one: 32 bytes, the path of a key file, `env:NAME`, or a function
        that returns the bytes. With `public_key` (32 bytes, or the path of a PEM file), a file
        without a valid Ed25519 signature of that key is refused. `weights` is the weight file of a
        package without weights, its bytes, or the folder of its weight files [default: beside it].
        """
        path = file_path("Package.load", path, 'a name such as "model.itg"')
        data = read_bytes(path)
        try:
            bare = decrypt(data, key, public_key)
            if bare is data:
                whole, files = attach(bare, os.path.dirname(path), weights, public_key is not None)
            else:
                whole, files = bare, []
            package = cls(whole)
            package.contents  # noqa: B018  # reading it checks it
            package.signature, package.weight_files = signature_of(data), files
        except (BadFile, BadKey) as e:
            raise type(e)(f"{path}: {e}") from None
        return package

    def save(
        self,
        path: str | Path,
        *,
        encrypt: str | None = None,
        key: KeySource | None = None,
        sign: Any = None,
        weights: str | Path | None = None,
        weights_from: Paths = (),
        swappable: bool = False,
    ) -> None:
        """Write the file atomically.

        With `weights`, a name such as "model.weights", the constants go to that file beside the
        package. Constants that are also in a file of `weights_from`, weight files or packages that
        have one, are taken from there. `swappable` lets the weight file be replaced by one of
        `save_weights`; otherwise the package takes exactly these weights.

        `encrypt` says what is encrypted with `key` (as in `load`): "weights"; "graph", all
        sections; "all", the section table too. `sign` is an Ed25519 private key: the path of a PEM
        file, 32 bytes, or an object of the package `cryptography`.
        """
        path = file_path("save", path, 'a name such as "model.itg"')
        data = np.frombuffer(self._file(), np.uint8)
        if weights is not None or weights_from or swappable:
            refuse_protected(encrypt is not None, sign is not None, swappable)
            data = separate(data, path, weights, weights_from, swappable)
        write_atomically(path, [_protected(data, encrypt, key, sign)])

    def protected(
        self, encrypt: str | None = None, key: KeySource | None = None, sign: Any = None
    ) -> memoryview:
        """The bytes that `save` writes to a single file."""
        return _protected(np.frombuffer(self._file(), np.uint8), encrypt, key, sign)

    def save_weights(self, path: str | Path) -> None:
        """Write a weight file for the swappable package that this one was loaded from, or made of
        by `with_weights`. Renamed over the old weight file, it needs no other package."""
        path = file_path("save_weights", path, 'a name such as "model.weights"')
        place = next((p for p in self.weight_files if p.swappable), None)
        if place is None:
            raise BadInput(
                "the package was not loaded from one with swappable weights; save such a one with "
                f"{option('swappable', True)}, or save the whole package"
            )
        write_atomically(path, refilled(np.frombuffer(self._file(), np.uint8), place))

    def with_weights(self, new: Any, **keywords: Any) -> Package:
        """The same plan with the weights of another training: see `intaglio.weight_update`."""
        from intaglio.weight_update import with_weights

        return with_weights(self, new, **keywords)

    @cached_property
    def bytes(self) -> bytes:
        """A copy of the bytes of the file."""
        return bytes(self._file())

    @property
    def image(self) -> memoryview:
        """The bytes of the file without a copy; unless `sealed`, without the checksum of CNST."""
        return self._data.data

    def _file(self) -> memoryview:
        if not self.sealed:
            seal(self._data)
            self.sealed = True
        return self.image

    @cached_property
    def contents(self) -> Contents:
        return read(self.image, trust=not self.sealed)

    @property
    def plans(self) -> list[Plan]:
        """The main plans, one per set of input shapes that the model was compiled for."""
        return self.contents.plans

    @property
    def plan(self) -> Plan:
        return self.plans[0]

    @property
    def meta(self) -> dict[str, Any]:
        """Metadata: the model's name and metadata, target, compiler version, reports."""
        return self.contents.meta

    @property
    def isa(self) -> str:
        """The instruction set that its weights are packed for, e.g. "avx512-vnni-bf16"."""
        return cpu_isa.name_of(self.contents.isa)

    @property
    def inputs(self) -> dict[str, Type]:
        return _types(self.plan.inputs, {s.input for s in self.plan.states})

    @property
    def outputs(self) -> dict[str, Type]:
        return _types(self.plan.outputs, {s.output for s in self.plan.states})

    @property
    def state(self) -> dict[str, Type]:
        """The types of the tensors that a session carries from one run to the next."""
        return _types([self.plan.inputs[s.input] for s in self.plan.states])

    @property
    def steps(self) -> int:
        """The number of kernel calls in the plan and its sub-plans."""
        return sum(len(p.steps) for p in self.plan.walk())

    def vendor_files(self) -> dict[str, Bytes]:
        """The files of the chip that NPU parts run as (`npu_code="chip"`), by their names."""
        from intaglio.package.vendor_files import vendor_files

        return {name: data for name, (_, data) in vendor_files(self.plans).items()}

    def performance(self, **what_if: Any) -> Any:
        """The predicted time on the chip, by layer: see `analysis.performance.performance`."""
        from intaglio.analysis.performance import performance

        return performance(self, **what_if)

    def memory(self) -> Any:
        """The use of the chip's memories: see `analysis.memory.memory`."""
        from intaglio.analysis.memory import memory

        return memory(self)

    def __repr__(self) -> str:
        return f"Package({len(self.image)} bytes, {self.steps} steps, {self.isa})"


_encrypt, _sign = encrypt, sign  # functions have arguments of these names


def _protected(data: Array, encrypt: str | None, key: KeySource | None, sign: Any) -> memoryview:
    if (encrypt is None) != (key is None):
        given, missing = ("key", "encrypt") if encrypt is None else ("encrypt", "key")
        raise BadInput(f"{option(given)} is given without {option(missing)}; give both")
    if encrypt is not None and key is not None:
        data = _encrypt(data, encrypt, key)
    return (data if sign is None else _sign(data, sign)).data


def _types(tensors: Sequence[Tensor | None], without: Collection[int] = ()) -> dict[str, Type]:
    return {t.name: t.type for i, t in enumerate(tensors) if t is not None and i not in without}
