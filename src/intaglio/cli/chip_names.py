"""Names of targets as click types, which the shell completes."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


class ChipName(click.ParamType):  # type: ignore[type-arg]  # not generic in click 8.1
    """A chip, `cpu` if that is allowed, or a TOML file; RK3588 is rk3588."""

    name = "target"

    def __init__(self, cpu: bool = False, several: bool = False):
        self.cpu, self.several = cpu, several

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        names = value.split(",") if self.several else [value]
        return ",".join(n if n.endswith(".toml") else n.strip().lower() for n in names)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        before, comma, start = incomplete.rpartition(",") if self.several else ("", "", incomplete)
        if not self.several and ("/" in start or start.endswith(".toml")):
            return [CompletionItem(incomplete, type="file")]
        found = [n for n in self._known(bool(comma)) if n.startswith(start.lower())]
        return [CompletionItem(f"{before}{comma}{n}") for n in found]

    def _known(self, after_others: bool) -> list[str]:
        from intaglio.targets import chip

        extra = ["all"] if self.several and not after_others else ["cpu"] if self.cpu else []
        return [*extra, *chip.names()]


TARGET = ChipName(cpu=True)
CHIP = ChipName()
CHIPS = ChipName(several=True)
