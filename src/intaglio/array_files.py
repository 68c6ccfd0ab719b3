"""Reads .npy and .npz files, whose headers may claim more than the file holds; writes .npz."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from intaglio.errors import BadFile
from intaglio.files import open_regular, write_atomically
from intaglio.ir import Array

_DAMAGE = (OSError, ValueError, EOFError, AttributeError, KeyError, zipfile.BadZipFile)


def read_npy(path: str | Path) -> Array:
    """The array in a .npy file, mapped: only the parts that are used are read."""
    try:
        open_regular(path).close()
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise BadFile(f"{path}: no such file") from None
    except OSError as e:
        raise BadFile(f"{path}: cannot be read: {(e.strerror or str(e)).lower()}") from None
    except (ValueError, EOFError) as e:
        raise BadFile(f"{path}: not an array that numpy can read ({e})") from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise BadFile(f"{path}: holds several arrays; call it .npz")
    return array


def read_npz(path: str | Path) -> Mapping[str, Array]:
    """The arrays in a .npz file by name."""
    try:
        open_regular(path).close()
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.filename.endswith(".npy"):
                    _check_header(archive, member)
        with np.load(path, allow_pickle=False) as arrays:
            return {k: arrays[k] for k in arrays.files}
    except FileNotFoundError:
        raise BadFile(f"{path}: no such file") from None
    except _DAMAGE as e:
        raise BadFile(f"{path}: not an .npz that numpy can read ({e})") from None


def write_npz(path: str | Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays by name, atomically."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]  # numpy's stub has a name of its own
    write_atomically(path, buffer.getvalue())


def _check_header(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """ValueError if a member's header claims more bytes than the member has."""
    with archive.open(member) as file:
        first = npy.read_magic(file) == (1, 0)
        read = npy.read_array_header_1_0 if first else npy.read_array_header_2_0
        shape, _, dtype = read(file)
    claimed = math.prod(shape) * dtype.itemsize
    if claimed > member.file_size:
        raise ValueError(f"'{member.filename}' claims {claimed} bytes and has {member.file_size}")
