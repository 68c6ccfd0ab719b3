"""Runs single commands in Sophgo's chip model; prints a digest of local memory for each line.

Arguments: the library, a file with local memory, a file of commands. It runs in a process of its
own, as the model ends the process where it does not like a command.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
from pathlib import Path

LANES, LANE, DIGESTED = 64, 1 << 18, 1 << 16  # DIGESTED: as in command_cases.py


class Local(ctypes.Structure):
    """The beginning of the model's own description of its local memory."""

    _fields_ = [("raw", ctypes.c_void_p)]


def main() -> None:
    """Print one line for each command: a digest, or `refused`."""
    library = ctypes.CDLL(sys.argv[1])
    image = Path(sys.argv[2]).read_bytes()
    library.cmodel_init.argtypes = [ctypes.c_int32, ctypes.c_int64]
    library.get_local_mem.restype = ctypes.POINTER(Local)
    library.execute_command.argtypes = [ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint]
    library.cmodel_init(0, 1 << 24)
    raw = library.get_local_mem(0).contents.raw
    for line in Path(sys.argv[3]).read_text().splitlines():
        read, write = os.pipe()
        child = os.fork()
        if not child:
            ctypes.memmove(raw, image, LANES * LANE)
            buffer = ctypes.create_string_buffer(bytes.fromhex(line) + bytes(256))
            library.execute_command(0, buffer, 0)
            lanes = (ctypes.string_at(raw + i * LANE, DIGESTED) for i in range(LANES))
            os.write(write, hashlib.sha256(b"".join(lanes)).hexdigest()[:16].encode())
            os._exit(0)
        os.close(write)
        found = os.read(read, 100).decode()
        os.close(read)
        os.waitpid(child, 0)
        print("digest", found or "refused", flush=True)


if __name__ == "__main__":
    main()
