"""View operators, whose result shares memory with their operand, and their inverses for writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from intaglio.frontends.torch.importer import axis_of, integer, permuted, reshaped
from intaglio.frontends.torch.mutable_tensor import Backward, MutableTensor, with_slice_replaced
from intaglio.frontends.torch.tensors import Quantized
from intaglio.ir import Value

Inverse = Callable[[Value, list[Any], dict[str, Any]], Backward | None]


def _same(x: Value, args: list[Any], kwargs: dict[str, Any]) -> Backward:
    return lambda base, new: new


def _reshape(x: Value, args: list[Any], kwargs: dict[str, Any]) -> Backward:
    return lambda base, new: reshaped(new, base.shape)


def _swap(x: Value, args: list[Any], kwargs: dict[str, Any]) -> Backward:
    a, b = (axis_of(d, x) for d in args[:2]) if args else (0, 1)
    perm = list(range(x.type.rank))
    if len(perm) > 1:
        perm[a], perm[b] = b, a
    return lambda base, new: permuted(new, perm)


def _permute(x: Value, args: list[Any], kwargs: dict[str, Any]) -> Backward:
    perm = [axis_of(d, x) for d in args[0]]
    return lambda base, new: permuted(new, [perm.index(i) for i in range(len(perm))])


def _slice(x: Value, args: list[Any], kwargs: dict[str, Any]) -> Backward:
    given = dict(zip(("dim", "start", "end", "step"), args, strict=False)) | kwargs
    axis = axis_of(given.get("dim", 0), x)
    low, high = given.get("start"), given.get("end")
    step = integer(given.get("step", 1))
    ends = (None if low is None else integer(low), None if high is None else integer(high))
    start, stop, _ = slice(*ends, step).indices(x.shape[axis])
    return lambda base, new: with_slice_replaced(base, new, axis, start, stop, step)


def _select(x: Value, args: list[Any], kwargs: dict[str, Any]) -> Backward:
    axis = axis_of(args[0] if args else kwargs["dim"], x)
    index = integer(args[1] if len(args) > 1 else kwargs["index"])
    at = index % max(x.shape[axis], 1)

    def back(base: Value, new: Value) -> Value:
        row = reshaped(new, (*base.shape[:axis], 1, *base.shape[axis + 1 :]))
        return with_slice_replaced(base, row, axis, at, at + 1)

    return back


def _narrow(x: Value, args: list[Any], kwargs: dict[str, Any]) -> Backward:
    axis, start, length = axis_of(args[0], x), integer(args[1]), integer(args[2])
    start += x.shape[axis] if start < 0 else 0
    return lambda base, new: with_slice_replaced(base, new, axis, start, start + length)


def _none(x: Value, args: list[Any], kwargs: dict[str, Any]) -> None:
    return None


VIEWS: dict[str, Inverse] = {
    **dict.fromkeys(("detach", "alias", "contiguous", "lift_fresh", "view_as_real"), _same),
    **dict.fromkeys(
        (
            "view",
            "reshape",
            "flatten",
            "unflatten",
            "squeeze",
            "unsqueeze",
            "view_as",
            "_unsafe_view",
            "reshape_as",
        ),
        _reshape,
    ),
    **dict.fromkeys(("transpose", "t", "swapaxes", "swapdims", "numpy_T"), _swap),
    **dict.fromkeys(
        (
            "expand",
            "expand_as",
            "split",
            "chunk",
            "unbind",
            "split_with_sizes",
            "tensor_split",
            "unfold",
            "movedim",
            "diagonal",
        ),
        _none,
    ),
    "permute": _permute,
    "slice": _slice,
    "select": _select,
    "narrow": _narrow,
}


def make_views(
    name: str,
    base: MutableTensor,
    made: Any,
    again: Callable[[Value], Any],
    args: list[Any],
    kwargs: dict[str, Any],
) -> Any:
    """The results of a view operator as views of `base`."""
    held = base.held
    if isinstance(held, Quantized):
        whole = made if isinstance(made, list | tuple) else [made]
        cells = [MutableTensor(m) for m in whole]
        return cells if isinstance(made, list | tuple) else cells[0]
    if isinstance(made, list | tuple):

        def item(i: int) -> Callable[[Value], Any]:
            return lambda v: again(v)[i]

        return [MutableTensor.view(base, m, item(i), None) for i, m in enumerate(made)]
    if made is held:
        return base
    return MutableTensor.view(base, made, again, VIEWS[name](held, args, kwargs))
