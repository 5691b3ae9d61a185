"""The backend that talks to a server over HTTP and passes on what the server answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.cli.backend.base import fill
from headway.cli.backend.connection import Link, part
from headway.cli.backend.http_access import HttpTenants, HttpTokens, HttpWebhooks
from headway.cli.backend.http_groups import HttpGroups, HttpSchedules, HttpTemplates
from headway.cli.backend.http_jobs import HttpJobs
from headway.cli.backend.http_queue import HttpQueue, HttpReservations, HttpTargets
from headway.cli.output import Json
from headway.model.audit import AuditFilter
from headway.model.manifest import Manifest
from headway.store.paging import MAX_LIMIT, check_limit


class HttpBackend:
    """Answers the commands from a server."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.jobs = HttpJobs(self)
        self.queue = HttpQueue(link)
        self.targets = HttpTargets(link)
        self.groups = HttpGroups(link, "group")
        self.executions = HttpGroups(link, "execution")
        self.schedules = HttpSchedules(link)
        self.templates = HttpTemplates(link)
        self.reservations = HttpReservations(link)
        self.tokens = HttpTokens(link)
        self.tenants = HttpTenants(link)
        self.webhooks = HttpWebhooks(link)

    @property
    def where(self) -> dict[str, str | None]:
        return {"database": None, "server": self.link.url}

    def now(self) -> int:
        return self.link.now()

    def stored_now(self) -> int:
        return self.link.now()

    def overview(self, *, listed: int = 10) -> Json:
        return self.link.get("/api/overview", listed=min(MAX_LIMIT, listed))

    def audit(self, wanted: AuditFilter, limit: int, cursor: str | None) -> Json:
        def read(count: int, cursor: str | None) -> Json:
            return self.link.get("/api/audit", **wanted.to_query(), limit=check_limit(count), cursor=cursor)

        return fill(read, limit, cursor)

    def workers(self) -> Json:
        return self.link.get("/api/workers")

    def stats(self) -> Json:
        return self.link.get("/api/stats")

    def tasks(self) -> Json:
        return self.link.get("/api/tasks")

    def call(self, task: str, params: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        return self.link.call(f"/api/direct/{part(task)}", {"params": dict(params), **options})["result"]

    def alone(self) -> bool:
        return all(worker["state"] == "gone" for worker in self.workers()["items"])

    def apply(self, text: str, wanted: Manifest, file: str, *, dry_run: bool) -> Json:
        return self.link.post("/api/apply", {"text": text, "file": file[-300:], "dry_run": dry_run})
