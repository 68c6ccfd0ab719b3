"""The arrays that a caller gives to a model: checked against its inputs, with remedies."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intaglio import dlpack, dtypes
from intaglio.arguments import described
from intaglio.errors import BadInput, did_you_mean, option
from intaglio.ir import Array, Type
from intaglio.open_graph import sizes_of
from intaglio.symint import SymInt

MAX_NAMES = 8  # in a message
# Permutations of the axes of an image: channels to the front, channels to the back.
_TURNED = {4: ((0, 3, 1, 2), (0, 2, 3, 1)), 3: ((2, 0, 1), (1, 2, 0))}


def require_names(call: str, types: Mapping[str, Type], inputs: Any, second: Any = None) -> None:
    """BadInput unless `inputs` maps names; the message holds the call that would be right.

    `call` is that call with `{}` for the inputs; `second` is the argument after them, which are the
    inputs if the caller is used to onnxruntime.
    """
    if isinstance(inputs, Mapping):
        return
    right = call.format(_example(types))
    if isinstance(second, Mapping):
        raise BadInput(
            f"the inputs come second, after {described(inputs)}, as in onnxruntime; here they come "
            f"first and the result has all outputs by name; write {right}"
        )
    raise BadInput(f"the inputs are {described(inputs)}, without names; write {right}")


def _example(types: Mapping[str, Type]) -> str:
    """The inputs as a dict in Python, with a variable for every array."""
    if len(types) == 1:
        return f"{{{_quoted(next(iter(types)))}: x}}"
    shown = [f"{_quoted(n)}: x{i}" for i, n in enumerate(types)]
    more = ["..."] if len(shown) > MAX_NAMES else []
    return f"{{{', '.join(shown[:MAX_NAMES] + more)}}}"


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def check_inputs(types: Mapping[str, Type], inputs: Mapping[str, Any]) -> dict[str, Array]:
    """The inputs as arrays, in the order of `types`; BadInput where a name or type is wrong."""
    if unknown := [n for n in inputs if n not in types]:
        raise no_such_name("input", unknown[0], types)
    if missing := [n for n in types if n not in inputs]:
        raise BadInput(f"input '{missing[0]}' is missing; the model needs {_listed(types)}")
    arrays = {name: _checked(name, inputs[name], t) for name, t in types.items()}
    if not all(t.fixed for t in types.values()):
        sizes_of(types, [a.shape for a in arrays.values()])
    return arrays


def no_such_name(what: str, name: Any, types: Mapping[str, Type]) -> BadInput:
    """The error for a name that the model does not have, with the nearest one."""
    has = f"the model has {_listed(types)}" if types else f"the model has no {what}"
    return BadInput(f"no {what} is called '{name}'; {has}{did_you_mean(str(name), types)}")


def _listed(types: Mapping[str, Type]) -> str:
    shown = [f"'{n}' {t}" for n, t in types.items()]
    more = [f"{len(shown) - MAX_NAMES} more"] if len(shown) > MAX_NAMES else []
    return ", ".join(shown[:MAX_NAMES] + more) or "no inputs"


def _checked(name: str, given: Any, t: Type) -> Array:
    want = dtypes.numpy_of(t.dtype)
    a = _array(name, given, want, t)
    if a.dtype == want and _fits(t, a.shape):
        return a
    takes = t.but(shape=a.shape) if _fits(t, a.shape) else t  # open dimensions as the caller's
    wrong = [f"shape {a.shape}"] if a.shape != takes.shape else []
    wrong += [f"dtype {a.dtype}"] if a.dtype != want else []
    raise BadInput(
        f"input '{name}' has {' and '.join(wrong)}, the model takes {want} {t.shape}; "
        f"{_remedy(name, 'x' if hasattr(given, 'astype') else 'np.asarray(x)', a, takes)}"
    )


def _fits(t: Type, shape: Sequence[int]) -> bool:
    """Whether a shape fits an input of type `t`; `sizes_of` checks its open dimensions."""
    return len(shape) == t.rank and all(
        isinstance(planned, SymInt) or extent == planned
        for extent, planned in zip(shape, t.shape, strict=True)
    )


def _array(name: str, given: Any, want: np.dtype[Any], t: Type) -> Array:
    try:
        a = _of_other_library(name, given) if dlpack.offers(given) else np.asarray(given)
    except BadInput:
        raise
    except Exception as e:  # objects of other libraries decide what they raise
        words = " ".join(str(e).split())
        hint = ".detach().cpu().numpy()" if hasattr(given, "detach") else ""
        remedy = f"give x{hint}" if hint else f"give an array of {want} {t.shape}"
        raise BadInput(f"input '{name}' cannot be read as an array ({words}); {remedy}") from None
    if a.dtype.kind in "OUSV" and not dtypes.known(a.dtype):
        raise BadInput(f"input '{name}' is {described(given)}; give an array of {want} {t.shape}")
    return a


def _of_other_library(name: str, given: Any) -> Array:
    """An array by DLPack, without a copy; if it cannot be had so, as numpy reads it."""
    try:
        return dlpack.as_array(f"input '{name}'", given)
    except BadInput:
        raise
    except Exception:  # objects of other libraries decide what they raise
        return np.asarray(given)


def _remedy(name: str, x: str, a: Array, t: Type) -> str:
    """What to write instead; `x` is the code for the caller's array."""
    want = dtypes.numpy_of(t.dtype)
    turned = "" if a.shape == t.shape else _turned(a.shape, t.shape)
    if turned is None:
        return _other_shape(name, a.shape, t.shape)
    cast = f".astype('{want}')" if a.dtype != want else ""
    return f"give {x}{turned}{cast}{_compiled_for(a, t, turned)}"


def _compiled_for(a: Array, t: Type, turned: str) -> str:
    """The other remedy: a model that takes pictures as the caller has them."""
    options = []
    if t.rank == 4 and a.dtype == np.uint8 and dtypes.is_float(t.dtype):
        options.append(option("input_type", "uint8"))
    if t.rank == 4 and "transpose" in turned:
        layout = "NHWC" if a.shape[-1] == t.shape[1] else "NCHW"
        options.append(option("input_layout", layout))
    index = _inserted(a.shape, t.shape)
    then = f" and give x{index}" if options and index else ""
    return f", or compile the model with {' and '.join(options)}{then}" if options else ""


def _inserted(shape: Sequence[int], want: Sequence[int]) -> str:
    """The index that adds the missing leading axes."""
    missing = len(want) - len(shape)
    return f"[{', '.join(['None'] * missing)}]" if missing > 0 else ""


def _turned(shape: tuple[int, ...], want: tuple[int, ...]) -> str | None:
    """The code behind `x` that gives an array of this shape the wanted one, without resizing it."""
    missing = len(want) - len(shape)
    if missing < 0 and want == shape[-missing:] and set(shape[:-missing]) == {1}:
        return f"[{', '.join(['0'] * -missing)}]"
    if missing < 0 or any(d != 1 for d in want[:missing]):
        return None
    index = _inserted(shape, want)
    if shape == want[missing:]:
        return index
    for axes in _TURNED.get(len(shape), ()):
        if tuple(shape[i] for i in axes) == want[missing:]:
            return f".transpose{axes}{index}"
    return None


def _other_shape(name: str, shape: tuple[int, ...], want: tuple[int, ...]) -> str:
    if len(shape) != len(want):
        return f"give an array with {len(want)} axes"
    given = option("shapes", {name: shape})
    if shape[1:] == want[1:]:
        return f"give {want[0]} at a time, or compile the model with {given}"
    return f"resize it, or compile the model with {given}"


def array_for(name: str, what: str, given: Any, t: Type) -> Array:
    """An array that a result is written into; BadInput unless it has the type and is writable."""
    want, a = dtypes.numpy_of(t.dtype), given
    if dlpack.offers(given):
        with contextlib.suppress(BufferError, RuntimeError):  # of a library that does not export it
            a = dlpack.as_array(f"{what}['{name}']", given)
    fits = isinstance(a, np.ndarray) and a.dtype == want and a.shape == t.shape
    if fits and a.flags.carray:
        return np.asarray(a)
    raise BadInput(
        f"{what}['{name}'] is {described(given)}; it must be an array {want}{list(t.shape)}, "
        f"writable and C-contiguous; make it with np.empty({t.shape}, '{want}')"
    )
