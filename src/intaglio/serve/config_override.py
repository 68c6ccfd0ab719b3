"""Triton's configuration override: settings that come with a request to load a model.

They hold until the model is loaded without them. What the package says cannot be overridden.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from intaglio.errors import BadInput
from intaglio.serve.refusals import bad_request
from intaglio.serve.settings import ModelSettings

OF_PACKAGE = [
    "name", "platform", "backend", "max_batch_size", "input", "output", "default_model_filename",
]  # fmt: skip
BATCHING = {"preferred_batch_size", "max_queue_delay_microseconds", "default_queue_policy"}
QUEUE = {"max_queue_size", "default_timeout_microseconds"}
Config = dict[str, Any]


def override_of(parameters: Any) -> Config | None:
    """The configuration in the parameters of a load request; Refused for anything else in them."""
    if not parameters:
        return None
    if not isinstance(parameters, dict):
        raise bad_request("parameters of a load request are no object")
    for name in parameters:
        if name != "config":
            raise bad_request(
                f"a load request takes no parameter '{str(name)[:64]}' here: files come from the "
                "repository; publish the model first"
            )
    text = parameters["config"]
    try:
        found = msgspec.json.decode(text.encode() if isinstance(text, str) else b"")
    except (msgspec.DecodeError, RecursionError) as e:
        raise bad_request(f"the parameter config is no JSON: {e}") from None
    if not isinstance(found, dict):
        raise bad_request("the parameter config is no JSON object")
    return found


def overridden(settings: ModelSettings, given: Config, current: Config | None) -> ModelSettings:
    """The settings with those of a configuration. `current` is that of the model, if it is served:
    what the package says may be repeated, but not changed."""
    changed: Config = {}
    for key, value in given.items():
        if key in OF_PACKAGE:
            if current is None or str(value) != str(current[key]):
                raise bad_request(
                    f"config has {key} {str(value)[:60]!r}, which comes from the package; leave it "
                    "out"
                )
        elif key in _READERS:
            changed |= _READERS[key](value)
        else:
            known = ", ".join(_READERS)
            raise bad_request(f"config has '{key[:64]}'; only {known} can be overridden")
    try:
        return replace(settings, **changed)
    except BadInput as e:
        raise bad_request(f"config: {e}") from None


def _versions(value: Any) -> Config:
    match value:
        case {"all": _}:
            return {"versions": "all"}
        case {"latest": dict(latest)}:
            return {"versions": f"latest:{_number(latest, 'num_versions', 1)}"}
        case {"specific": {"versions": [*numbers]}}:
            return {"versions": [_whole("versions", n) for n in numbers]}
    raise bad_request("config has a version_policy that is none of latest, all and specific")


def _instances(value: Any) -> Config:
    match value:
        case [dict(group)] if group.get("kind", "KIND_CPU") in ("KIND_CPU", "KIND_AUTO"):
            return {"instances": _number(group, "count", 1)}
    raise bad_request("config has an instance_group that is not one group of KIND_CPU")


def _batching(value: Any) -> Config:
    given = _object("dynamic_batching", value, BATCHING)
    changed: Config = {"max_delay_us": _number(given, "max_queue_delay_microseconds", 0)}
    sizes = given.get("preferred_batch_size", [])
    if not isinstance(sizes, list):
        raise bad_request("config has a preferred_batch_size that is no list")
    changed["preferred"] = [_whole("preferred_batch_size", n) for n in sizes]
    policy = _object("default_queue_policy", given.get("default_queue_policy", {}), QUEUE)
    if most := _number(policy, "max_queue_size", 0):
        changed["max_queue"] = most
    if timeout := _number(policy, "default_timeout_microseconds", 0):
        changed["deadline_ms"] = -(-timeout // 1000)
    return changed


def _sequences(value: Any) -> Config:
    given = _object("sequence_batching", value, {"max_sequence_idle_microseconds", "direct"})
    idle = _number(given, "max_sequence_idle_microseconds", 0)
    return {"sequence_idle_s": -(-idle // 1_000_000)} if idle else {}


_READERS = {
    "version_policy": _versions,
    "instance_group": _instances,
    "dynamic_batching": _batching,
    "sequence_batching": _sequences,
}


def _object(name: str, value: Any, known: set[str]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise bad_request(f"config has a {name} that is no object")
    for key in value:
        if key not in known:
            raise bad_request(f"config has '{key[:64]}' in {name}; it cannot be overridden")
    return value


def _number(given: Mapping[str, Any], name: str, without: int) -> int:
    return _whole(name, given.get(name, without))


def _whole(name: str, value: Any) -> int:
    """A number; those of 64 bits may be strings in the JSON of protobuf."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 19:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise bad_request(f"config has {name} {str(value)[:40]!r}; give a number of 0 or more")
    return value
