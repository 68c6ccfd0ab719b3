"""Operations of TorchScript that could grow without bound: on lists, strings and whole numbers.

A file that asks for more than the limits is malicious: no model needs them.
"""

from __future__ import annotations

from typing import Any

from intaglio.errors import BadFile

MAX_LENGTH = 200_000  # items of a list, characters of a string


def refuse_long(items: int) -> None:
    if items > MAX_LENGTH:
        raise BadFile(f"a list or string grows to {items} items; the file is malicious")


def bounded(xs: Any) -> Any:
    refuse_long(len(xs))
    return xs


def join(between: str, parts: list[str]) -> str:
    refuse_long(sum(map(len, parts)) + len(between) * len(parts))
    return between.join(parts)


def replace(text: str, old: str, new: str, most: int = -1) -> str:
    found = text.count(old) if most < 0 else min(text.count(old), most)
    refuse_long(len(text) + found * (len(new) - len(old)))
    return text.replace(old, new, most)


def range_list(n: int) -> list[int]:
    refuse_long(n)
    return list(range(n))


def append(xs: list[Any], x: Any) -> list[Any]:
    xs.append(x)
    return bounded(xs)


def extend(xs: list[Any], more: list[Any]) -> None:
    xs.extend(more)
    bounded(xs)


def insert(xs: list[Any], at: int, x: Any) -> None:
    xs.insert(at, x)
    bounded(xs)


def add(a: Any, b: Any, alpha: Any = 1) -> Any:
    if isinstance(a, list | str | tuple):
        return bounded(a + b)
    return a + b * alpha


def mul(a: Any, b: Any) -> Any:
    for xs, count in ((a, b), (b, a)):
        if isinstance(xs, list | str | tuple):
            if not isinstance(count, int) or len(xs) * count > MAX_LENGTH:
                raise BadFile(f"a list or string is repeated {count} times; the file is malicious")
            return xs * count
    return a * b


def pow(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int) and abs(b) > 64:
        raise BadFile(f"{a} to the power of {b} is computed; the file is malicious")
    return a**b


def shift(a: int, b: int) -> int:
    if not 0 <= b < 64:
        raise BadFile(f"a shift by {b} is computed; the file is malicious")
    return a << b
