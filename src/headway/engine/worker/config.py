"""The settings of a worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.engine.execution.secrets import NO_VAULT, Vault


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """The settings of a worker. Times are in seconds."""

    slots: int = 4
    tasks: Sequence[str] | None = None
    # The names of the tenants to serve; none stands for all.
    tenants: Sequence[str] = ()
    lease: float = 60.0
    heartbeat: float = 2.0
    grace: float = 30.0
    artifacts: Path = Path("headway-artifacts")
    listen: str | None = None
    vault: Vault = NO_VAULT

    @property
    def secret(self) -> frozenset[str]:
        return self.vault.variables
