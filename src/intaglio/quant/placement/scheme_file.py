"""The scheme as a YAML file that users read, edit and pass back."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from intaglio import dtypes
from intaglio.errors import BadFile, BadInput
from intaglio.files import write_atomically
from intaglio.ops.registry import REGISTRY
from intaglio.quant.placement.scheme import PRECISIONS, Override, Scheme, TensorScheme
from intaglio.quant.ranges.affine import affine

VERSION = 1
HEADER = """\
# Quantisation scheme. Edit it and use it: `intaglio quantize ... --scheme THIS`
# overrides  - {op: softmax, precision: f32}; also pattern: 'head/*' or tensor: name; the last wins
# layers     precision of each layer, by the name of its first output
# tensors    real = scale * (stored - zero); without scale and zero they follow from range
"""
_SPELLINGS = {
    "i8": "int8",
    "i16": "int16",
    "float": "f32",
    "fp32": "f32",
    "float32": "f32",
    "fp16": "f16",
    "float16": "f16",
    "bfloat16": "bf16",
}
_TYPES = {
    "int4": "i4",
    "uint4": "u4",
    "int8": "i8",
    "uint8": "u8",
    "int16": "i16",
    "uint16": "u16",
    "int32": "i32",
    "fp32": "f32",
    "float32": "f32",
    "fp16": "f16",
    "float16": "f16",
    "bfloat16": "bf16",
}
_KEYS = ("version", "model", "overrides", "layers", "tensors")
_TENSOR_KEYS = ("type", "range", "scale", "zero", "axis", "block")


# ---- writing -------------------------------------------------------------------------------------
def write(scheme: Scheme, path: str | Path) -> None:
    """Write `scheme` as YAML."""
    import yaml

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        """Writes lists on one line: a tensor takes few lines, however many channels it has."""

    Dumper.add_representer(
        tuple, lambda d, data: d.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=True)
    )
    content = {
        "version": VERSION,
        "model": scheme.model,
        "overrides": [_plain_override(o) for o in scheme.rules],
        "layers": scheme.layers,
        "tensors": {name: _plain_tensor(t) for name, t in scheme.tensors.items()},
    }
    text = yaml.dump(
        content,
        Dumper=Dumper,
        sort_keys=False,
        default_flow_style=False,
        allow_unicode=True,
        width=100,
        indent=2,
    )
    write_atomically(path, (HEADER + text).encode())


def _plain_override(o: Override) -> dict[str, str]:
    named = {"tensor": o.tensor, "pattern": o.pattern, "op": o.op}
    return {k: v for k, v in named.items() if v} | {"precision": o.precision}


def _plain_tensor(t: TensorScheme) -> dict[str, Any]:
    plain: dict[str, Any] = {"type": t.dtype}
    if t.lo or t.hi:
        plain["range"] = (float(t.lo), float(t.hi))
    if t.scale:
        plain["scale"] = _one_or_all([float(s) for s in t.scale])
        zeros = [int(z) for z in t.zero]
        plain["zero"] = zeros[0] if len(set(zeros)) == 1 else tuple(zeros)
    if t.axis is not None:
        plain["axis"] = t.axis
    if t.block:
        plain["block"] = t.block
    return plain


def _one_or_all(numbers: list[float]) -> float | tuple[float, ...]:
    return numbers[0] if len(numbers) == 1 else tuple(numbers)


# ---- reading -------------------------------------------------------------------------------------
def read(path: str | Path, strict: bool = False) -> Scheme:
    """The scheme in a file."""
    content = _parse(path)
    try:
        return _scheme(content, strict, str(path))
    except BadFile:
        raise
    except BadInput as e:
        raise BadFile(f"{path}: {e}") from None


def _parse(path: str | Path) -> Any:
    import yaml

    try:
        return _tree(Path(path).read_text("utf-8"))
    except FileNotFoundError:
        raise BadFile(
            f"{path}: no such file; write a scheme with `Scheme.save`, or with "
            "`intaglio quantize --export-scheme`"
        ) from None
    except OSError as e:
        raise BadFile(f"{path}: cannot be read ({e.strerror})") from None
    except UnicodeDecodeError:
        raise BadFile(f"{path}: not a text file; a scheme is YAML in UTF-8") from None
    except yaml.YAMLError as e:
        mark = getattr(e, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        what = getattr(e, "problem", None) or str(e).splitlines()[0]
        raise BadFile(f"{path}: {where}not YAML ({what})") from None
    except BadInput as e:
        raise BadFile(f"{path}: {e}") from None


def _tree(text: str) -> Any:
    """The first YAML document as mappings, lists and text (a tensor may be called 123).

    From the parser's events, because PyYAML's own composer crashes on deep nesting.
    """
    import yaml

    def place(item: Any) -> None:
        if isinstance(stack[-1], list):
            stack[-1].append(item)
        elif keys[-1] is None:
            if item in stack[-1]:
                raise BadInput(f"line {line}: '{item}' is there twice; keep one of them")
            keys[-1] = item
        else:
            stack[-1][keys[-1]], keys[-1] = item, None

    stack: list[Any] = [[]]  # open containers, outermost first
    keys: list[Any] = [None]  # for each mapping among them, the key that waits for its value
    for event in yaml.parse(text, getattr(yaml, "CBaseLoader", yaml.BaseLoader)):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise BadInput(f"line {line}: a scheme has no aliases; write the text out")
        if isinstance(event, yaml.ScalarEvent):
            place(event.value)
        elif isinstance(event, yaml.CollectionStartEvent):
            if keys[-1] is None and isinstance(stack[-1], dict):
                raise BadInput(f"line {line}: a name must be a word, not a list or mapping")
            if len(stack) > 8:
                raise BadInput(f"line {line}: nested too deeply to be a scheme")
            result: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
            place(result)
            stack.append(result)
            keys.append(None)
        elif isinstance(event, yaml.CollectionEndEvent):
            stack.pop()
            keys.pop()
        elif isinstance(event, yaml.DocumentEndEvent):
            break
    return stack[0][0] if stack[0] else None


def _scheme(content: Any, strict: bool, source: str) -> Scheme:
    top = _mapping(content, "the file", _KEYS)
    version = top.get("version", str(VERSION))
    if version != str(VERSION):
        raise BadInput(f"version is {version!r}; this intaglio reads version {VERSION}")
    layers = {
        name: _precision(p, f"layers: '{name}'")
        for name, p in _mapping(top.get("layers") or {}, "layers").items()
    }
    tensors = {
        name: _tensor(t, f"tensors: '{name}'")
        for name, t in _mapping(top.get("tensors") or {}, "tensors").items()
    }
    listed = top.get("overrides") or []
    if not isinstance(listed, list):
        raise BadInput("overrides: must be a list, one '- {op: ..., precision: ...}' per line")
    rules = [_override(o, f"overrides: entry {i}") for i, o in enumerate(listed, 1)]
    return Scheme(tensors, layers, rules, str(top.get("model", "")), strict, source)


def _override(o: Any, where: str) -> Override:
    given = _mapping(o, where, ("tensor", "pattern", "op", "precision"))
    named = [k for k in ("tensor", "pattern", "op") if k in given]
    if len(named) != 1:
        raise BadInput(
            f"{where}: names {' and '.join(named) or 'no layer'}; give one of tensor, pattern, op"
        )
    if "precision" not in given:
        raise BadInput(f"{where}: precision is missing; it is one of {', '.join(PRECISIONS)}")
    name = _text(given[named[0]], f"{where}: {named[0]}")
    if named[0] == "op":
        name = _op(name, where)
    return Override(_precision(given["precision"], where), **{named[0]: name})


def _op(name: str, where: str) -> str:
    """Our name of an op, which ONNX may call otherwise."""
    if name in REGISTRY:
        return name
    known = {op.replace("_", ""): op for op in REGISTRY}
    known |= {o.names["onnx"].lower(): op for op, o in REGISTRY.items() if "onnx" in o.names}
    plain = name.lower().replace("_", "")
    if plain in known:
        return known[plain]
    near = difflib.get_close_matches(plain, known, 3, 0.5)
    hint = f"did you mean {' or '.join(known[n] for n in near)}?" if near else "see inspect MODEL"
    raise BadInput(f"{where}: no op is called '{name}'; {hint}")


def _precision(p: Any, where: str) -> str:
    text = _text(p, where)
    name = _SPELLINGS.get(text, text)
    if name not in PRECISIONS:
        raise BadInput(f"{where}: precision is '{text}'; it is one of {', '.join(PRECISIONS)}")
    return name


def _tensor(t: Any, where: str) -> TensorScheme:
    given = _mapping(t, where, _TENSOR_KEYS)
    if "type" not in given:
        raise BadInput(f"{where}: type is missing, e.g. type: i8")
    dtype = _text(given["type"], f"{where}: type")
    dtype = _TYPES.get(dtype, dtype)
    ends = _numbers(given.get("range", []), float, f"{where}: range")
    if len(ends) not in (0, 2):
        raise BadInput(f"{where}: range has {len(ends)} numbers; give two: [low, high]")
    lo, hi = ends or (0.0, 0.0)
    scale = _numbers(given.get("scale", []), float, f"{where}: scale")
    zero = _numbers(given.get("zero", []), int, f"{where}: zero")
    axis = _numbers(given["axis"], int, f"{where}: axis") if "axis" in given else (None,)
    block = _numbers(given.get("block", "0"), int, f"{where}: block")
    if len(axis) != 1 or len(block) != 1:
        raise BadInput(f"{where}: axis and block are one number each")
    try:
        if scale or not ends or dtype not in dtypes.TABLE or not dtypes.is_integer(dtype):
            return TensorScheme(dtype, scale, zero or (0,) * len(scale), axis[0], block[0], lo, hi)
        TensorScheme("f32", lo=lo, hi=hi)  # raises if it is no range
        if lo == hi == 0:
            raise BadInput("range is [0, 0] and holds nothing but 0; give another, or a scale")
        return affine(lo, hi, dtype)
    except BadInput as e:
        raise BadInput(f"{where}: {e}") from None


def _mapping(content: Any, where: str, keys: Iterable[str] | None = None) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise BadInput(f"{where}: must hold 'name: value' lines, not {_kind(content)}")
    for key in content:
        _text(key, f"{where}: a name")
        if keys is not None and key not in keys:
            near = difflib.get_close_matches(key, keys, 1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(keys)}"
            raise BadInput(f"{where}: '{key}' is unknown; {hint}")
    return content


def _text(content: Any, where: str) -> str:
    if not isinstance(content, str) or not content:
        raise BadInput(f"{where}: must be a word, not {_kind(content)}")
    return content


def _numbers(content: Any, kind: Callable[[str], Any], where: str) -> tuple[Any, ...]:
    """One number or a list of them."""
    texts = content if isinstance(content, list) else [content]
    try:
        return tuple(kind(_text(t, where)) for t in texts)
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise BadInput(f"{where}: must be {what}, not {str(content)[:40]!r}") from None


def _kind(content: Any) -> str:
    if isinstance(content, dict | list):
        return "a mapping" if isinstance(content, dict) else "a list"
    return repr(content)[:40] if content else "nothing"
