"""Weights, buffers and constants of a torch.export archive (.pt2)."""

from __future__ import annotations

import functools
import json
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadFile, Unsupported
from intaglio.frontends.torch.archive import Archive
from intaglio.frontends.torch.exported_json import element_type
from intaglio.frontends.torch.mutable_tensor import MutableTensor
from intaglio.frontends.torch.tensors import loaded, strided
from intaglio.frontends.torch.unpickle import Stored, unpickle
from intaglio.ir import Value, constant

LEGACY_PROGRAM = "serialized_exported_program.json"  # in archives before PyTorch 2.8


class ExportedWeights:
    """Reads the tensors of the program `model` by name."""

    def __init__(self, archive: Archive, model: str):
        self.archive, self.model = archive, model
        self._configs: dict[str, dict[str, Any]] = {}
        order = archive.text("byteorder").strip() if "byteorder" in archive else "little"
        self.swapped = order == "big"

    def read(self, kind: str, name: str) -> MutableTensor:
        if LEGACY_PROGRAM in self.archive:
            return MutableTensor(self._old_tensor(name), name)
        for folder in ("weights", "constants") if kind != "tensor_constant" else ("constants",):
            entry = self._config(folder).get(name)
            if entry is None:
                continue
            if entry.get("use_pickle") or entry.get("tensor_meta") is None:
                raise Unsupported(
                    f"torch: tensor '{name}' is stored as a pickled object, which is not "
                    "supported; export it again"
                )
            return MutableTensor(
                self._raw(f"data/{folder}/{entry['path_name']}", entry["tensor_meta"]), name
            )
        raise BadFile(f"{self.archive.what} lacks tensor '{name[:120]}'; it is damaged")

    def _config(self, folder: str) -> dict[str, Any]:
        """The config of a folder: locations of tensors by name."""
        if folder not in self._configs:
            self._configs[folder] = self._read_config(folder)
        return self._configs[folder]

    def _read_config(self, folder: str) -> dict[str, Any]:
        name = f"data/{folder}/{self.model}_{folder}_config.json"
        if name not in self.archive:
            return {}
        try:
            result = json.loads(self.archive.text(name))["config"]
        except (ValueError, RecursionError, TypeError, KeyError) as e:
            raise BadFile(f"{self.archive.what}: '{name}' is damaged ({str(e)[:120]})") from None
        return result if isinstance(result, dict) else {}

    def _raw(self, path: str, meta: dict[str, Any]) -> Value:
        shape = tuple(int(s["as_int"]) for s in meta["sizes"])
        stride = tuple(int(s["as_int"]) for s in meta["strides"])
        kind = np.dtype(dtypes.numpy_of(element_type(meta)))
        kind = kind.newbyteorder("S") if self.swapped else kind
        offset = int(meta["storage_offset"].get("as_int", 0))
        return constant(
            strided(self.archive.read(path), kind, offset, shape, stride, self.archive.what)
        )

    def _old_tensor(self, name: str) -> Any:
        """A tensor of an archive before PyTorch 2.8, which nests torch.save archives."""
        for record in ("serialized_state_dict.pt", "serialized_constants.pt"):
            if record not in self.archive:
                continue
            inner = Archive(self.archive.read(record), f"{self.archive.what} ({record})")
            stored = unpickle(inner.read("data.pkl"), inner.what, outline=True)
            if isinstance(stored, dict) and isinstance(stored.get(name), Stored):
                return loaded(stored[name], functools.partial(_inner_storage, inner), inner.what)
        raise BadFile(f"{self.archive.what} lacks tensor '{name[:120]}'; it is damaged")


def _inner_storage(archive: Archive, key: str) -> bytes:
    return archive.read(f"data/{key}")
