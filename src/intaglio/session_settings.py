"""How a session is created: the options of `intaglio.open` that the C runtime takes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from intaglio.arguments import default_threads, whole_number
from intaglio.core_mask import CoreMask, mask_bits
from intaglio.internal_memory import InternalMemory, require_internal
from intaglio.runtime import COptions
from intaglio.thread_pool import ThreadPool, require_pool

ANY_PLAN = 0xFFFFFFFF  # ITG_ANY_PLAN


@dataclass(frozen=True)
class SessionSettings:
    """itg_options, with the Python objects that must live as long as the session."""

    plan: int = ANY_PLAN
    threads: int = 1
    profile: bool = False
    max_steps: int = 0
    pool: ThreadPool | None = None
    internal: InternalMemory | None = None
    core_mask: int = 0  # bits

    @classmethod
    def of(
        cls,
        threads: int | None,
        *,
        plan: int | None = None,
        profile: bool = False,
        max_steps: int = 0,
        pool: ThreadPool | None = None,
        internal: InternalMemory | None = None,
        core_mask: CoreMask | None = None,
    ) -> SessionSettings:
        """Checked settings. With a pool, `threads` limits how many of its threads are used."""
        pool = require_pool(pool)
        if pool is not None:
            wanted = pool.threads if threads is None else default_threads(threads)
            threads = min(wanted, pool.threads)
        return cls(
            ANY_PLAN if plan is None else whole_number("plan", plan, 0, ANY_PLAN - 1),
            default_threads(threads),
            bool(profile),
            whole_number("max_steps", max_steps, 0, (1 << 64) - 1),
            pool,
            require_internal(internal),
            mask_bits(core_mask),
        )

    def but(
        self,
        threads: int | None,
        pool: ThreadPool | None,
        internal: InternalMemory | None,
        core_mask: CoreMask | None = None,
        plan: int | None = None,
    ) -> SessionSettings:
        """These settings with what is not None changed."""
        changed = replace(self, internal=require_internal(internal) or self.internal)
        if core_mask is not None:
            changed = replace(changed, core_mask=mask_bits(core_mask))
        if plan is not None:
            changed = replace(changed, plan=whole_number("plan", plan, 0, ANY_PLAN - 1))
        if threads is None and pool is None:
            return changed
        other = SessionSettings.of(threads, pool=self.pool if pool is None else pool)
        return replace(changed, threads=other.threads, pool=other.pool)

    def native(self) -> COptions:
        """The settings as the C runtime reads them; inputs and outputs are the caller's."""
        options = COptions(self.plan, self.threads, self.profile, 1, self.max_steps)
        if self.pool is not None:
            options.pool = self.pool.handle
        options.internal_later = self.internal is not None
        options.core_mask = self.core_mask
        return options
