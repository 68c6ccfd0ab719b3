"""Refused requests: an HTTP status, the gRPC code that means the same, and one line of words."""

from __future__ import annotations

from intaglio.errors import IntaglioError

GRPC_CODES = {  # HTTP status -> name of a grpc.StatusCode
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    408: "DEADLINE_EXCEEDED",
    413: "RESOURCE_EXHAUSTED",
    415: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
REASONS = {  # label of the metric of refused requests, by status
    400: "bad_request",
    401: "token",
    403: "forbidden",
    404: "unknown_model",
    408: "slow_client",
    413: "too_large",
    429: "queue_full",
    499: "client_gone",
    503: "unavailable",
    504: "deadline",
}


class Refused(IntaglioError):
    """A request that gets an error as its answer."""

    def __init__(self, status: int, words: str, retry_after: int | None = None):
        super().__init__(words)
        self.status, self.retry_after = status, retry_after

    @property
    def reason(self) -> str:
        """The label of the metric of refused requests."""
        return REASONS.get(self.status, "other")


def bad_request(words: str) -> Refused:
    """The request is wrong in itself: sent again, it fails again."""
    return Refused(400, words)


def lacks(extension: str) -> str:
    """What is said of an extension of Triton's that is not here."""
    remedy = "; send tensors in the request" if extension == "shared memory" else ""
    return f"this server does not have {extension}{remedy}"
