"""The file `MODEL.quantization.cfg`: layers that the user moves to other types, and all scales."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from intaglio import dtypes
from intaglio.errors import BadFile, BadInput, did_you_mean
from intaglio.files import write_atomically
from intaglio.quant import Scheme, TensorScheme
from intaglio.quant.ranges.affine import affine

TYPES = {"i8": "int8", "u8": "uint8", "i16": "int16", "u16": "uint16"}
PRECISIONS = {"float16": "f16", "float32": "f32", "int8": "int8", "int16": "int16"}


def write(scheme: Scheme, layers: Mapping[str, tuple[str, float | None]], path: Path) -> None:
    """Write the scales of `scheme`, and `layers`: {tensor: (type, cosine or None)}."""
    import yaml

    lines = ["custom_quantize_layers:"]
    for name, (kind, cosine) in layers.items():
        comment = "" if cosine is None else f"  # cosine {cosine:.5f}"
        lines.append(f"    {yaml.safe_dump(name, width=1 << 20).splitlines()[0]}: {kind}{comment}")
    if not layers:
        lines[0] += " {}"
    parameters = {name: _plain(t) for name, t in scheme.tensors.items() if t.scale}
    text = yaml.safe_dump(
        {"quantize_parameters": parameters}, sort_keys=False, indent=4, allow_unicode=True
    )
    write_atomically(path, ("\n".join(lines) + "\n" + text).encode())


def _plain(t: TensorScheme) -> dict[str, Any]:
    lo, hi = dtypes.limits(t.dtype)
    least = [s * (lo - z) for s, z in zip(t.scale, t.zero, strict=True)]
    most = [s * (hi - z) for s, z in zip(t.scale, t.zero, strict=True)]
    plain: dict[str, Any] = {
        "qtype": "asymmetric_quantized" if any(t.zero) else "symmetric_quantized",
        "qmethod": "layer" if t.axis is None else "channel",
        "dtype": TYPES.get(t.dtype, t.dtype),
        "min": [float(x) for x in least],
        "max": [float(x) for x in most],
        "scale": [float(s) for s in t.scale],
        "zero_point": [int(z) for z in t.zero],
        "ori_min": [float(t.lo)],
        "ori_max": [float(t.hi)],
    }
    if t.axis is not None:
        plain["axis"] = t.axis
    return plain


def read(path: Path, before: Scheme) -> Scheme:
    """The scheme that an edited file means; `before` is the one that was written."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        raise BadFile(f"'{path}' is no YAML ({' '.join(str(e).split())}); correct it") from None
    except OSError as e:
        raise BadFile(f"cannot read '{path}': {(e.strerror or '').lower()}") from None
    if not isinstance(content, Mapping):
        raise BadFile(f"'{path}' has no custom_quantize_layers; run hybrid_quantization_step1")
    layers = content.get("custom_quantize_layers") or {}
    parameters = content.get("quantize_parameters") or {}
    if not isinstance(layers, Mapping) or not isinstance(parameters, Mapping):
        raise BadFile(f"'{path}': custom_quantize_layers and quantize_parameters are mappings")
    found = {str(n): _precision(path, str(n), p) for n, p in layers.items()}
    tensors = dict(before.tensors)
    for name, given in parameters.items():
        if name not in tensors:
            hint = did_you_mean(str(name), tensors)
            raise BadInput(f"'{path}': no tensor is called '{name}'{hint or '; remove it'}")
        tensors[name] = _tensor(path, str(name), given, tensors[name])
    return Scheme(tensors, found, source=str(path))


def _precision(path: Path, name: str, given: Any) -> str:
    if given not in PRECISIONS:
        raise BadInput(
            f"'{path}': layer '{name}' has type {given!r}; it is one of {', '.join(PRECISIONS)}"
        )
    return PRECISIONS[given]


def _tensor(path: Path, name: str, given: Any, old: TensorScheme) -> TensorScheme:
    """One entry of quantize_parameters; an edited min or max gives a new scale."""
    was = _plain(old)
    if not isinstance(given, Mapping):
        raise BadInput(f"'{path}': tensor '{name}' is {given!r}; give min, max, scale, zero_point")
    if all(given.get(k, was[k]) == was[k] for k in ("min", "max", "scale", "zero_point")):
        return old
    try:
        if any(given.get(k, was[k]) != was[k] for k in ("scale", "zero_point")):
            scale = tuple(float(s) for s in given.get("scale", was["scale"]))
            zero = tuple(int(z) for z in given.get("zero_point", was["zero_point"]))
        else:
            pairs = zip(given["min"], given["max"], strict=True)
            found = [affine(float(lo), float(hi), old.dtype, not any(old.zero)) for lo, hi in pairs]
            scale = tuple(t.scale[0] for t in found)
            zero = tuple(t.zero[0] for t in found)
        return TensorScheme(old.dtype, scale, zero, old.axis, old.block)
    except (TypeError, ValueError, KeyError) as e:
        raise BadInput(f"'{path}': tensor '{name}': {e}; give lists of numbers") from None
