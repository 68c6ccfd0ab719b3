"""The JSON of torch.export: unions, symbols of dimensions, names of results, element types."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from intaglio.errors import BadFile, Unsupported
from intaglio.frontends.torch.tensors import CODES, EXPORTED


def symbol_of(size: dict[str, Any]) -> str:
    """The symbol of an open dimension, plain or as printed by sympy."""
    text = str(size.get("as_expr", {}).get("expr_str", ""))
    found = re.fullmatch(r"Symbol\('(\w+)'(, \w+=\w+)*\)", text)
    return found[1] if found else text


def only_alternative(x: dict[str, Any]) -> tuple[str, Any]:
    """Name and value of the alternative that is set in a union."""
    if not isinstance(x, dict) or len(x) != 1:
        raise BadFile(
            f"torch: a union must have one alternative: {str(x)[:80]}; the file is damaged"
        )
    return next(iter(x.items()))


def output_names(outputs: list[dict[str, Any]]) -> list[str]:
    names: list[str] = []
    for o in outputs:
        kind, x = only_alternative(o)
        if kind in ("as_tensor", "as_custom_obj"):
            names.append(str(x["name"]))
        elif kind == "as_tensors":
            names += [str(t["name"]) for t in x]
        elif kind.startswith("as_sym_") and isinstance(x, dict):
            names.append(str(x.get("as_name", "?")))
        elif kind == "as_optional_tensor":
            names.append(str(x.get("as_tensor", {}).get("name", "?")))
        elif kind == "as_none":
            names.append("?")
    return names


def number(x: Any) -> Any:
    """A JSON number; inf and NaN are stored as strings."""
    if isinstance(x, str) and x in ("Infinity", "-Infinity", "NaN", "inf", "-inf", "nan"):
        return {"I": math.inf, "-": -math.inf, "N": math.nan, "i": math.inf, "n": math.nan}[x[0]]
    return x


def constant_value(x: dict[str, Any]) -> Any:
    kind, v = only_alternative(x)
    return None if kind == "as_none" else number(v)


def element_type(meta: dict[str, Any]) -> str:
    code = EXPORTED.get(meta["dtype"])
    if code is None or code not in CODES:
        raise Unsupported(f"torch: element type {meta['dtype']} of torch.export is not supported")
    return CODES[code]


# ---- the structure of the outputs ----------------------------------------------------------------
def nested_outputs(module: dict[str, Any], leaves: list[Any]) -> Any:
    """The outputs in the containers that forward returned; the list itself if these are unknown."""
    calls = module.get("module_call_graph") or []
    whole = next((c for c in calls if isinstance(c, dict) and c.get("fqn") == ""), {})
    signature = whole.get("signature") or {}
    try:
        _, spec = json.loads(signature.get("out_spec") or "null")
        rest = list(leaves)
        result = _unflattened(spec, rest)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return leaves
    return leaves if rest else result


def _unflattened(spec: dict[str, Any], leaves: list[Any]) -> Any:
    if spec["type"] is None:
        return leaves.pop(0)
    results = [_unflattened(child, leaves) for child in spec["children_spec"]]
    names = _field_names(spec["context"], len(results))
    return results if names is None else dict(zip(names, results, strict=True))


def _field_names(context: Any, count: int) -> list[str] | None:
    """The keys of a container: a list of keys, or a list of lists of which the first has them.

    Dicts and Hugging Face's ModelOutput store their keys, dataclasses also those that are None.
    """
    stored: Any = json.loads(context) if isinstance(context, str) else None
    if isinstance(stored, list) and stored and all(isinstance(k, list) for k in stored):
        stored = stored[0]
    if not isinstance(stored, list) or len(stored) != count:
        return None
    return [str(k) for k in stored] if all(isinstance(k, str | int) for k in stored) else None
