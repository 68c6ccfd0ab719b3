"""Execution providers: the CPU is the only one, others are replaced by it with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from intaglio.ort.errors import BadValue

CPU = "CPUExecutionProvider"
STACK_LEVEL = 4  # from a warning here to the caller of InferenceSession


def warn_of_providers(providers: Any, options: Any = None) -> None:
    """Check a list of providers; warn of those that Intaglio does not have."""
    listed = [providers] if isinstance(providers, str) else list(providers or ())
    if options is not None and listed and len(options) != len(listed):
        raise BadValue(
            f"{len(listed)} providers and {len(options)} provider_options are given; give as many "
            "of both"
        )
    for one in listed:
        name = one[0] if isinstance(one, Sequence) and not isinstance(one, str) and one else one
        if not isinstance(name, str):
            raise BadValue(f"providers has {one!r}; give names, or pairs of a name and options")
        if name != CPU:
            warnings.warn(
                f"'{name}' is not available in intaglio.ort; the model runs on the CPU",
                stacklevel=STACK_LEVEL,
            )
