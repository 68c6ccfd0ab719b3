"""Bytes of memory that a project needs, and whether a board has them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from intaglio.errors import BadInput, Unsupported, option
from intaglio.export.deploy.board import Board, Memory

CODE_BYTES = 30 << 10  # upper bound of kernels, model and start-up


@dataclass(frozen=True)
class Sizes:
    """Bytes by purpose."""

    weights: int
    arena: int
    inputs: int
    outputs: int
    vectors: int  # in the example only

    @property
    def ram(self) -> int:
        """Arena, inputs and outputs."""
        return self.arena + self.inputs + self.outputs

    def to_dict(self) -> dict[str, int]:
        return {
            "weights": self.weights,
            "arena": self.arena,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "vectors": self.vectors,
            "ram": self.ram,
        }


def with_memory(board: Board, flash: int | None, ram: int | None) -> Board:
    """The board with the user's own sizes of flash and RAM."""
    if flash is None and ram is None:
        return board
    if board.memory is None:
        name = "flash" if flash is not None else "ram"
        raise BadInput(f"{option(name)} is for boards without an operating system; leave it out")
    sizes = {k: v for k, v in (("flash", flash), ("ram", ram)) if v is not None}
    if flash is not None:
        sizes["weights"] = 0  # the part has one flash
    return replace(board, memory=replace(board.memory, **sizes))


def is_emulated(emulated: Board, chosen: Board) -> bool:
    """Whether QEMU's machine has the flash and RAM of the user's own part."""
    a, b = emulated.memory, chosen.memory
    return a is None or b is None or (b.flash <= a.flash and b.ram <= a.ram)


def require_fit(board: Board, sizes: Sizes, weights_in_ram: bool) -> None:
    """Unsupported where the board has too little flash or RAM."""
    if board.memory is None:
        return
    m: Memory = board.memory
    apart = sizes.weights if m.weights and not weights_in_ram else 0
    flash = sizes.weights - apart + sizes.vectors + CODE_BYTES
    ram = sizes.ram + m.stack + (sizes.weights if weights_in_ram else 0)
    for word, need, has, parts in (
        (
            "RAM",
            ram,
            m.ram,
            f"arena {sizes.arena:,}, inputs {sizes.inputs:,}, outputs "
            f"{sizes.outputs:,}, stack {m.stack:,}" + (", weights" if weights_in_ram else ""),
        ),
        (
            "flash",
            flash,
            m.flash,
            (f"weights {sizes.weights:,}, " if not apart else "")
            + f"code up to {CODE_BYTES:,}, test vectors {sizes.vectors:,}",
        ),
        ("memory for weights", apart, m.weights, "all constants"),
    ):
        if need > has:
            raise Unsupported(
                f"deploy: the model needs {need:,} bytes of {word} ({parts}), {board.name} has "
                f"{has:,}; choose a larger part, or a smaller model"
            )
