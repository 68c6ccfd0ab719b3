"""Arrays in blocks: arrays do not overlap, and a block is freed with its last array."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref

import numpy as np
import pytest

from intaglio import heap
from intaglio.heap import Arena

SIZES = [
    0,
    1,
    heap.MIN_BLOCK_ARRAY - 1,
    heap.MIN_BLOCK_ARRAY,
    100_001,
    3 << 20,
    heap.MAX_BLOCK_ARRAY,
    heap.MAX_BLOCK_ARRAY + 1,
    40 << 20,
]


def test_arrays_do_not_overlap():
    arrays = [heap.empty((n,), np.uint8) for n in SIZES * 3]
    for i, a in enumerate(arrays):
        a[:1], a[-1:] = i, i
        if a.size >= heap.MIN_BLOCK_ARRAY:
            assert a.ctypes.data % heap.ALIGN == 0
    assert all((a[:1] == i).all() and (a[-1:] == i).all() for i, a in enumerate(arrays))
    spans = sorted((a.ctypes.data, a.ctypes.data + a.nbytes) for a in arrays if a.size)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


@pytest.mark.parametrize("dtype", ["f4", "i1", "f8", "u2"])
@pytest.mark.parametrize("shape", [(), (0, 5), (7, 3), (130, 257), (9, 512, 700)])
def test_arrays_have_the_layout_of_numpy(shape, dtype):
    array, like = heap.empty(shape, dtype), np.empty(shape, dtype)
    assert (array.shape, array.dtype, array.strides) == (like.shape, like.dtype, like.strides)
    assert array.flags.c_contiguous
    assert array.flags.writeable


def test_a_block_is_freed_with_its_last_array():
    first, second = (heap.empty((1 << 20,), np.uint8) for _ in range(2))
    block = weakref.ref(first.base)
    del first
    gc.collect()
    assert block() is second.base
    del second
    gc.collect()
    assert block() is None
    assert heap.empty((1 << 20,), np.uint8).size == 1 << 20  # allocates a new block


def test_threads_have_their_own_blocks():
    bases = []
    ours = heap.empty((1 << 20,), np.uint8)
    thread = threading.Thread(target=lambda: bases.append(heap.empty((1 << 20,), np.uint8)))
    thread.start()
    thread.join()
    assert bases[0].base is not ours.base


def test_own_blocks_are_not_shared():
    shared = heap.empty((1 << 20,), np.uint8)
    for size in (0, 5, heap.MIN_BLOCK_ARRAY, heap.MAX_BLOCK_ARRAY + 1):
        array = heap.own_block(size)
        assert array.size == size
        assert array.base is not shared.base
        assert array.ctypes.data % heap.ALIGN == 0 or not size


@pytest.mark.parametrize("size", [0, heap.MAX_BLOCK_ARRAY + 1, 64 << 20])
def test_offsets_in_an_arena_do_not_depend_on_the_reserved_memory(size):
    with Arena(size) as arena:
        arrays = [
            heap.package_array((n,), np.uint8)
            for n in (heap.MIN_BLOCK_ARRAY, 100_001, 9 << 20, 70_000)
        ]
        few = heap.package_array((5,), np.float32)
    starts = [4096, 4096 + heap.MIN_BLOCK_ARRAY, 0, 0]
    starts[2] = starts[1] + 100_032
    starts[3] = starts[2] + (9 << 20)
    found = [arena.places[a.ctypes.data] for a in arrays]
    assert found == [(start, a.size) for start, a in zip(starts, arrays, strict=True)]
    assert arena.end == starts[3] + 70_016
    assert few.ctypes.data not in arena.places
    assert arena.whole == (size == 64 << 20)
    for a, (start, n) in zip(arrays, found, strict=True):
        inside = start + n <= len(arena.memory)
        assert np.shares_memory(a, arena.memory[start : start + n]) == inside


def test_the_innermost_arena_holds_new_arrays():
    big = (heap.MIN_BLOCK_ARRAY,)
    with Arena(1 << 26) as outer:
        first = heap.package_array(big, np.uint8)
        with Arena(1 << 26) as inner:
            second = heap.package_array(big, np.uint8)
        third = heap.package_array(big, np.uint8)
    fourth = heap.package_array(big, np.uint8)
    assert {a.ctypes.data for a in (first, third)} == set(outer.places)
    assert {second.ctypes.data} == set(inner.places)
    assert fourth.ctypes.data not in (*outer.places, *inner.places)
