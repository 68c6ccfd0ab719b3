"""The recipe of a package: the options that it was compiled with, kept in its metadata.

`Package.with_weights` compiles the model of another training in the same way.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intaglio.compile_options import CompileOptions
from intaglio.errors import BadFile
from intaglio.tune import Decision

KEY = "recipe"  # in the metadata
KEPT_OPTIONS = (
    "disable",
    "batch",
    "cores",
    "by_layer",
    "npu_code",
)  # others are in the metadata anyway
MAX_VALUE_BYTES = 64 << 10  # of an array among the options; larger ones must be given again
ARRAY = "array"  # key of an array as JSON
Choices = list[list[list[str]]]  # for each size: rule, origin and choice of each node


def of_compilation(
    options: CompileOptions, load: Mapping[str, Any], decisions: Sequence[Sequence[Decision]]
) -> dict[str, Any]:
    """The recipe as JSON. Options without a JSON form are listed as `missing`."""
    kept = {n: _plain(getattr(options, n)) for n in KEPT_OPTIONS}
    default = {n: _plain(getattr(CompileOptions, n)) for n in KEPT_OPTIONS}
    recipe: dict[str, Any] = {n: v for n, v in kept.items() if v != default[n]}
    plain, missing = {}, []
    for name, value in load.items():
        if _is_given(value):
            try:
                plain[name] = _plain(value)
            except TypeError:
                missing.append(name)
    if plain:
        recipe["load"] = plain
    if missing:
        recipe["missing"] = sorted(missing)
    if options.tune:
        recipe["choices"] = [[[d.rule, d.origin, d.choice] for d in made] for made in decisions]
    return {KEY: recipe}


def options_of(meta: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The options of `compile` and those of `load` in a package's metadata; None without recipe."""
    recipe = meta.get(KEY)
    if not isinstance(recipe, dict):
        return None
    load = recipe.get("load", {})
    if not isinstance(load, dict):
        raise BadFile("recipe of the package is damaged; compile again")
    options = {n: recipe[n] for n in KEPT_OPTIONS if n in recipe}
    options |= {n: meta[n] for n in ("level", "precision") if n in meta}
    return options, {n: _parsed(v) for n, v in load.items()}


def missing_of(meta: Mapping[str, Any]) -> list[str]:
    """Options of `load` that the recipe could not keep."""
    found = meta.get(KEY, {}).get("missing", [])
    return [n for n in found if isinstance(n, str)]


def choices_of(meta: Mapping[str, Any]) -> Choices:
    """The measured choices for each size; none if the package was not tuned."""
    found = meta.get(KEY, {}).get("choices", [])
    return found if isinstance(found, list) else []


def _is_given(value: Any) -> bool:
    return (
        value is not None
        and value is not False
        and not (hasattr(value, "__len__") and not len(value))
    )


def _plain(value: Any) -> Any:
    """An option as JSON; TypeError if it has no such form."""
    if isinstance(value, str | bool | int | float | None):
        return value
    if isinstance(value, np.generic) and value.ndim == 0 and value.dtype.kind in "biuf":
        return value.item()
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if (
        isinstance(value, np.ndarray)
        and value.nbytes <= MAX_VALUE_BYTES
        and value.dtype.kind in "biuf"
    ):
        raw = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {ARRAY: [value.dtype.str, list(value.shape), raw]}
    if isinstance(value, list | tuple | set | frozenset):
        listed = sorted(value) if isinstance(value, set | frozenset) else value
        return [_plain(v) for v in listed]
    raise TypeError(f"{type(value).__name__} is not kept")


def _parsed(value: Any) -> Any:
    if isinstance(value, list):
        return [_parsed(v) for v in value]
    if not isinstance(value, dict):
        return value
    if set(value) != {ARRAY}:
        return {k: _parsed(v) for k, v in value.items()}
    try:
        dtype, shape, raw = value[ARRAY]
        return np.frombuffer(base64.b64decode(raw), np.dtype(dtype)).reshape(shape)
    except (ValueError, TypeError):
        raise BadFile("recipe of the package is damaged; compile again") from None
