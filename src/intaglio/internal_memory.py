"""Memory for intermediate tensors that sessions share."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from intaglio.arguments import MAX_THREADS, default_threads, described, whole_number
from intaglio.errors import BadInput, RunError
from intaglio.idle_stack import IdleStack
from intaglio.package.format import ALIGN


class Block:
    """Aligned memory for the intermediate tensors of one run; none before the first run."""

    def __init__(self, memory: np.ndarray[Any, np.dtype[np.uint8]] | None = None):
        self.memory, self.address, self.bytes = memory, 0, 0
        if memory is not None:
            self._use(memory)

    def _use(self, memory: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        skipped = -memory.ctypes.data % ALIGN
        self.memory = memory
        self.address = memory.ctypes.data + skipped
        self.bytes = max(memory.nbytes - skipped, 0)

    def grow(self, size: int) -> None:
        """Allocate as many bytes. What lay in the block is lost."""
        self.memory, self.address, self.bytes = None, 0, 0  # freed before the new is allocated
        try:
            self._use(np.empty(size + ALIGN, np.uint8))
        except MemoryError:
            raise RunError(f"there is not enough memory for {size} bytes of a run") from None


class InternalMemory:
    """Memory for intermediate tensors that sessions share: each run borrows a block of it.

    `blocks` is how many of its sessions may compute at the same time (default: one per CPU). A
    further run waits until a block is free. A block is allocated when a run first needs it, and
    has the size that its largest session needs. `buffer` gives memory of yours instead, as one
    block: an object with a writable buffer, such as an array or an `mmap`, that nothing else uses,
    no other process either.
    """

    def __init__(self, blocks: int | None = None, *, buffer: Any = None):
        self.fixed = buffer is not None
        if self.fixed and blocks not in (None, 1):
            raise BadInput(f"blocks is {blocks!r}; a buffer is one block; leave blocks out")
        n = 1 if self.fixed else default_threads(None) if blocks is None else blocks
        self.blocks = n = whole_number("blocks", n, 1, MAX_THREADS)
        self._blocks = [Block(_given(buffer))] if self.fixed else [Block() for _ in range(n)]
        self._idle = IdleStack(self._blocks)
        self._needed = 0  # bytes, by the largest session
        if self.fixed:
            _given_buffers.add(self)

    @property
    def bytes(self) -> int:
        """How many bytes are allocated now."""
        return sum(b.bytes for b in self._blocks)

    def reserve(self, size: int) -> None:
        """Note that a session needs this many bytes; BadInput if they are more than the buffer."""
        has = self._blocks[0].bytes
        if self.fixed and size > has:
            raise BadInput(
                f"the buffer of the InternalMemory has {has} bytes from its first multiple of "
                f"{ALIGN} on; the session needs {size}; give a larger one"
            )
        self._needed = max(self._needed, size)

    def take(self) -> Block:
        """A block for one run; waits while others use all of them."""
        block = self._idle.take()
        if block.bytes < self._needed:
            try:
                block.grow(self._needed)
            except BaseException:
                self._idle.give(block)
                raise
        return block

    def give(self, block: Block) -> None:
        """Return a block."""
        self._idle.give(block)


def require_internal(internal: InternalMemory | None) -> InternalMemory | None:
    """`internal`, which must be an InternalMemory or None."""
    if internal is None or isinstance(internal, InternalMemory):
        return internal
    raise BadInput(
        f"internal is {described(internal)}; give an intaglio.InternalMemory, whose buffer may be "
        "yours: InternalMemory(buffer=...)"
    )


_given_buffers: weakref.WeakSet[InternalMemory] = weakref.WeakSet()


def _given(buffer: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The bytes of a caller's buffer; BadInput unless it can be written and is used only here."""
    try:
        memory = np.frombuffer(buffer, np.uint8)
    except (TypeError, ValueError, BufferError):
        memory = None
    if memory is None or not memory.flags.writeable:
        raise BadInput(
            f"buffer is {described(buffer)}; give contiguous memory that can be written, such as "
            "np.empty(bytes, np.uint8)"
        )
    for other in _given_buffers:
        if np.may_share_memory(memory, other._blocks[0].memory):
            raise BadInput(
                "buffer is used by another InternalMemory; give that object to all sessions"
            )
    return memory
