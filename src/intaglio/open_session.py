"""`intaglio.open`: a session of a package."""

from __future__ import annotations

from pathlib import Path

from intaglio.core_mask import CoreMask
from intaglio.internal_memory import InternalMemory
from intaglio.package import Package
from intaglio.package.keys import KeySource, PublicKeySource
from intaglio.session import Session
from intaglio.thread_pool import ThreadPool


def open(
    source: str | Path | bytes | Package,
    threads: int | None = None,
    *,
    plan: int | None = None,
    profile: bool = False,
    verify: bool = True,
    max_steps: int = 0,
    copy: bool = False,
    key: KeySource | None = None,
    public_key: PublicKeySource | None = None,
    weights: str | Path | None = None,
    pool: ThreadPool | None = None,
    internal: InternalMemory | None = None,
    core_mask: CoreMask | None = None,
) -> Session:
    """Open a package file (or a Package, or its bytes) to run it.

    `threads` defaults to the number of CPUs that this process may use. With `pool`, an
    `intaglio.ThreadPool`, the session uses the threads of that pool, `threads` of them at most.
    With `internal`, an `intaglio.InternalMemory`, it borrows memory for its intermediate tensors
    for each run. A package that was compiled for a list of shapes runs all of them; `plan` chooses
    one. `profile` measures every step. `core_mask` chooses the NPU cores that run a package for a
    chip: `(0, 2)`, `"0,2"`, bits as in RKNN (5), or `"all"`; results do not depend on it.
    `verify=False` skips the checksum of the weights. `max_steps` limits the number of steps of one
    run, so that endless loops stop (0: 10^9 steps). A file is mapped: nobody may write into it or
    shorten it while it is open. `copy=True` reads it into memory instead.

    `key` opens an encrypted package: 32 bytes, the path of a key file, `env:NAME`, or a function
    that returns the bytes. With `public_key` (32 bytes, or the path of a PEM file), a package
    without a valid Ed25519 signature of that key is refused.

    `weights` is the weight file of a package without weights, or the folder of its weight files
    [default: beside the package]. Each is mapped once in a process, whichever packages use it.
    """
    session = object.__new__(Session)
    session.__init__(  # type: ignore[misc]  # __new__ would take a model file
        source,
        threads,
        plan=plan,
        profile=profile,
        verify=verify,
        max_steps=max_steps,
        copy=copy,
        key=key,
        public_key=public_key,
        weights=weights,
        pool=pool,
        internal=internal,
        core_mask=core_mask,
    )
    return session
