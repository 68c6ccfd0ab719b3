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
from intaglio.package.write import seal, write
from intaglio.plan import Plan, Tensor

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
        self.signature: Signature | None = None  # of the file that it was loaded from

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
    ) -> Package:
        """Read a `.itg` file; BadFile if it is not a valid package.

        `key` opens an encrypted one: 32 bytes, the path of a key file, `env:NAME`, or a function
        that returns the bytes. With `public_key` (32 bytes, or the path of a PEM file), a file
        without a valid Ed25519 signature of that key is refused.
        """
        path = file_path("Package.load", path, 'a name such as "model.itg"')
        data = read_bytes(path)
        try:
            package = cls(decrypt(data, key, public_key))
            package.contents  # noqa: B018  # reading it checks it
            package.signature = signature_of(data)
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
    ) -> None:
        """Write the file atomically.

        `encrypt` says what is encrypted with `key` (as in `load`): "weights"; "graph", all
        sections; "all", the section table too. `sign` is an Ed25519 private key: the path of a PEM
        file, 32 bytes, or an object of the package `cryptography`.
        """
        path = file_path("save", path, 'a name such as "model.itg"')
        write_atomically(path, [self.protected(encrypt, key, sign)])

    def protected(
        self, encrypt: str | None = None, key: KeySource | None = None, sign: Any = None
    ) -> memoryview:
        """The bytes that `save` writes."""
        if (encrypt is None) != (key is None):
            given, missing = ("key", "encrypt") if encrypt is None else ("encrypt", "key")
            raise BadInput(f"{option(given)} is given without {option(missing)}; give both")
        data = np.frombuffer(self._file(), np.uint8)
        if encrypt is not None and key is not None:
            data = _encrypt(data, encrypt, key)
        return (data if sign is None else _sign(data, sign)).data

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


_encrypt, _sign = encrypt, sign  # methods have arguments of these names


def read_bytes(path: str | Path) -> Array:
    """The bytes of a file in aligned memory; BadFile if it cannot be read."""
    try:
        with open(path, "rb") as file:
            data = heap.own_block(os.fstat(file.fileno()).st_size)
            return data[: file.readinto(data.data)]
    except OSError as e:
        raise BadFile(f"cannot read {path}: {e.strerror}") from None


def _types(tensors: Sequence[Tensor | None], without: Collection[int] = ()) -> dict[str, Type]:
    return {t.name: t.type for i, t in enumerate(tensors) if t is not None and i not in without}
