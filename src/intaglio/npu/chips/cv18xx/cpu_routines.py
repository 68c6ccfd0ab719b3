"""Functions of Sophgo's runtime that a cvimodel calls on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from intaglio.errors import BadFile, Unsupported
from intaglio.ir import Array
from intaglio.npu.chips import flatbuffer

SCHEMA = flatbuffer.Schema(
    {
        "Parameter": "attributes:[Attribute]",
        "Attribute": "float_attr:Float bool_attr:Bool int_attr:Int str_attr:Str "
        "float_array_attr:Floats int_array_attr:Ints",
        "Float": "key:str value:f32",
        "Bool": "key:str value:bool",
        "Int": "key:str value:i32",
        "Str": "key:str value:str",
        "Floats": "key:str value:[f32]",
        "Ints": "key:str value:[i32]",
    },
    {},
)


def arguments(data: bytes) -> dict[str, Any]:
    """The named arguments of a function."""
    root = flatbuffer.read(data, SCHEMA, "Parameter", "cvimodel")
    found: dict[str, Any] = {}
    for attribute in root["attributes"]:
        for one in attribute.values():
            if one is not None:
                found[one["key"]] = one["value"]
    return found


def run(name: str, arguments: dict[str, Any], inputs: list[Array], dtype: str) -> Array:
    """The result of a function, flat, as the bytes of `dtype`."""
    function = FUNCTIONS.get(name)
    if function is None:
        raise Unsupported(
            f"cvimodel: it calls the function '{name}' on the CPU; "
            f"only {', '.join(FUNCTIONS)} can be simulated"
        )
    if not inputs:
        raise BadFile(f"cvimodel: the function '{name}' has no input")
    return function(arguments, inputs, dtype)


BELOW_HALF = np.nextafter(np.float32(0.5), np.float32(0))  # a half more makes halves whole


def quantize(arguments: dict[str, Any], inputs: list[Array], dtype: str) -> Array:
    """f32 to int8 by a factor, halves away from zero, or to bf16; int8 to f32."""
    x, scale = inputs[0], np.float32(arguments.get("scale", 1.0))
    with np.errstate(all="ignore"):
        if dtype in ("i8", "u8"):
            low, high = (-128, 127) if dtype == "i8" else (0, 255)
            scaled = np.asarray(x.astype(np.float32) * scale)
            np.copyto(scaled, 0, where=np.isnan(scaled))
            np.add(scaled, np.copysign(BELOW_HALF, scaled), out=scaled)
            np.clip(scaled, low, high, out=scaled)
            return np.asarray(scaled, np.int8 if dtype == "i8" else np.uint8)  # towards zero
        if dtype == "bf16":
            return np.asarray(x, ml_dtypes.bfloat16)
        return np.asarray(x.astype(np.float32) * scale, np.float32)


FUNCTIONS: dict[str, Callable[[dict[str, Any], list[Array], str], Array]] = {"quant": quantize}
