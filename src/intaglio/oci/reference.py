"""The name of an artifact: registry/repository:tag or registry/repository@sha256:digest."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from intaglio.errors import BadInput

HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?"
PART = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
REFERENCE = re.compile(
    rf"(?P<registry>{HOST})/(?P<repository>{PART}(?:/{PART})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?\Z"
)
LONGEST = 512


@dataclass(frozen=True)
class Reference:
    """Where an artifact is; without a tag and a digest it is `latest`."""

    registry: str
    repository: str
    tag: str | None
    digest: str | None

    @classmethod
    def parse(cls, text: str) -> Reference:
        """The parts of a name; BadInput says its form."""
        text = text.removeprefix("oci://")
        found = REFERENCE.match(text) if len(text) <= LONGEST else None
        if found is None or not _is_host(found["registry"]):
            raise BadInput(
                f"'{text[:80]}' is no name of an artifact; give registry/repository:tag, such as "
                "localhost:5000/models/digits:3"
            )
        return cls(found["registry"], found["repository"], found["tag"], found["digest"])

    @property
    def version(self) -> str:
        """What a registry is asked for."""
        return self.digest or self.tag or "latest"

    @property
    def local(self) -> bool:
        """Whether the registry is this machine, which may speak HTTP without TLS."""
        host = self.registry.rsplit(":", 1)[0] if "]" not in self.registry[-1:] else self.registry
        host = host.strip("[]")
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    def __str__(self) -> str:
        tag = "" if self.tag is None else f":{self.tag}"
        return f"{self.registry}/{self.repository}{tag}" + (
            f"@{self.digest}" if self.digest else ""
        )


def _is_host(text: str) -> bool:
    """Whether the first part can be a registry; `models/digits` has none."""
    return "." in text or ":" in text or text == "localhost"
