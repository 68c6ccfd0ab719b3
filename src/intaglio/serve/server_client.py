"""Requests to a running server, for `intaglio publish` and rollouts."""

from __future__ import annotations

import urllib.error
import urllib.request
from contextlib import suppress
from typing import Any

import msgspec

from intaglio.errors import BadInput

TIMEOUT_S = 10.0
MAX_ANSWER = 64 << 20


class Declined(BadInput):
    """The server answered with an error; the message is its words."""


def ask(
    url: str,
    method: str,
    path: str,
    body: Any = None,
    token: str | None = None,
    timeout: float = TIMEOUT_S,
) -> Any:
    """The JSON of an answer, or its text if it is none."""
    if not url.startswith(("http://", "https://")):
        raise BadInput(f"the server is '{url}'; give a URL such as http://127.0.0.1:8000")
    data = None if body is None else msgspec.json.encode(body)
    request = urllib.request.Request(url.rstrip("/") + path, data=data, method=method)
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            raw = answer.read(MAX_ANSWER)
    except urllib.error.HTTPError as e:
        raise Declined(_error_words(e.read(4096)) or str(e.reason)) from None
    except (urllib.error.URLError, OSError, ValueError) as e:
        reason = getattr(e, "reason", e)
        raise BadInput(f"the server at {url} does not answer: {reason}") from None
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(raw)
    return raw.decode("utf-8", "replace")


def _error_words(body: bytes) -> str:
    with suppress(msgspec.DecodeError):
        found = msgspec.json.decode(body)
        if isinstance(found, dict):
            return str(found.get("error", ""))
    return ""
