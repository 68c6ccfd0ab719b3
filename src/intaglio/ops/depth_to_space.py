"""depth_to_space (pixel shuffle), space_to_depth and channel_shuffle."""

from __future__ import annotations

from intaglio.errors import BadInput
from intaglio.ir import Array, Type, Value
from intaglio.ops.registry import op
from intaglio.ops.shape import reshape, transpose


def _image(x: Value, blocksize: int) -> tuple[int, int, int, int]:
    if x.type.rank != 4 or blocksize < 1:
        raise BadInput(
            f"{x.type} with blocksize {blocksize}; rank 4 and a blocksize above 0 are needed"
        )
    return x.shape  # type: ignore[return-value]  # the rank is 4


def _block_mode(mode: str) -> None:
    if mode not in ("DCR", "CRD"):
        raise BadInput(f"mode '{mode}' is neither DCR (depth, column, row) nor CRD")


def _batch_free(x: Value) -> tuple[int, ...]:
    return (-1, *x.shape[1:]) if 0 in x.type.dynamic else x.shape


def _depth_to_space(x: Value, *, blocksize: int, mode: str) -> Type:
    n, c, h, w = _image(x, blocksize)
    _block_mode(mode)
    if c % blocksize**2:
        raise BadInput(f"{c} channels are no multiple of blocksize² = {blocksize**2}")
    return Type(x.dtype, (n, c // blocksize**2, h * blocksize, w * blocksize))


def depth_to_space_steps(
    shape: tuple[int, ...], b: int, mode: str
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Shape of the first reshape, permutation of the transpose, shape of the last reshape."""
    n, c, h, w = shape
    c //= b * b
    split = (n, b, b, c, h, w) if mode == "DCR" else (n, c, b, b, h, w)
    perm = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
    return split, perm, (n, c, h * b, w * b)


@op(_depth_to_space, onnx="DepthToSpace")
def depth_to_space(x: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    split, perm, shape = depth_to_space_steps(x.shape, blocksize, mode)
    return x.reshape(split).transpose(perm).reshape(shape)


@depth_to_space.lowers
def _lower_depth_to_space(x: Value, *, blocksize: int, mode: str) -> Value:
    split, perm, shape = depth_to_space_steps(_batch_free(x), blocksize, mode)
    return reshape(transpose(reshape(x, shape=split), perm=perm), shape=shape)


def _space_to_depth(x: Value, *, blocksize: int, mode: str) -> Type:
    n, c, h, w = _image(x, blocksize)
    _block_mode(mode)
    if h % blocksize or w % blocksize:
        raise BadInput(f"height {h} and width {w} are no multiples of the blocksize {blocksize}")
    return Type(x.dtype, (n, c * blocksize**2, h // blocksize, w // blocksize))


def space_to_depth_steps(
    shape: tuple[int, ...], b: int, mode: str
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Shape of the first reshape, permutation of the transpose, shape of the last reshape."""
    n, c, h, w = shape
    h, w = h // b, w // b
    perm = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return (n, c, h, b, w, b), perm, (n, c * b * b, h, w)


@op(_space_to_depth, onnx="SpaceToDepth")
def space_to_depth(x: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    split, perm, shape = space_to_depth_steps(x.shape, blocksize, mode)
    return x.reshape(split).transpose(perm).reshape(shape)


@space_to_depth.lowers
def _lower_space_to_depth(x: Value, *, blocksize: int, mode: str) -> Value:
    split, perm, shape = space_to_depth_steps(_batch_free(x), blocksize, mode)
    return reshape(transpose(reshape(x, shape=split), perm=perm), shape=shape)


def _channel_shuffle(x: Value, *, groups: int) -> Type:
    if x.type.rank < 2 or groups < 1 or x.shape[1] % groups:
        raise BadInput(f"the channels of {x.type} cannot be split into {groups} groups")
    return Type(x.dtype, x.shape)


@op(_channel_shuffle, torch="channel_shuffle")
def channel_shuffle(x: Array, *, groups: int) -> Array:
    """Interleave the channels of `groups` groups: the first of each, the second of each, ..."""
    n, c, *rest = x.shape
    return x.reshape(n, groups, c // groups, *rest).swapaxes(1, 2).reshape(x.shape)


@channel_shuffle.lowers
def _lower_channel_shuffle(x: Value, *, groups: int) -> Value:
    n, c, *rest = _batch_free(x)
    split = reshape(x, shape=(n, groups, c // groups, *rest))
    swapped = transpose(split, perm=(0, 2, 1, *range(3, x.type.rank + 1)))
    return reshape(swapped, shape=(n, c, *rest))
