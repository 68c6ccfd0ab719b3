"""Conversions between the CPU's channels-last images and the neutral channels-first ones."""

from __future__ import annotations

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Type, Value


def channels_first(x: Array) -> Array:
    return np.moveaxis(x, -1, 1)


def channels_last(x: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def neutral_image(x: Value) -> Value:
    """The channels-first image for the neutral op."""
    if not 3 <= x.type.rank <= 5:
        raise BadInput(
            f"a channels-last image with one to three spatial axes is needed, not {x.type}"
        )
    return Value(x.type.but(shape=(x.shape[0], x.shape[-1], *x.shape[1:-1])))


def channels_last_type(t: Type | list[Type]) -> Type:
    assert isinstance(t, Type)
    return t.but(shape=(t.shape[0], *t.shape[2:], t.shape[1]))
