"""Schedules for the tests of their pages, the editor as a browser would send it, and the jobs that came of it."""

from __future__ import annotations

import html
import re
import threading
from typing import Any

from headway.model.jobs.filter import JobFilter
from headway.model.schedules.schedule import Schedule
from headway.store.jobs import views as job_views
from tests.support.deadlines import join
from tests.support.service import Site

STORY = {"task": "story.generate", "params": {"topic": "fog"}}
NIGHTLY: dict[str, Any] = {"cron": "30 2 * * mon-fri", "timezone": "Europe/Berlin", "steps": [STORY]}
# Everything that the editor has to give back as it was.
RICH: dict[str, Any] = {
    **NIGHTLY,
    "overlap": "queue",
    "catch_up": "all",
    "window": "2h",
    "cap": 3,
    "jitter": "90s",
    "on_failure": "continue",
    "on_shutdown": "resume",
    "start": "2026-10-25T00:30:00.5Z",
    "end": "9999-12-31T23:59:59Z",
    "note": "for <HR>\nand Ada",
    "params": {"topic": "sea"},
    "steps": [
        {**STORY, "index": 3, "resources": ["ollama"], "timeout": 90, "retry_policy": {"max_attempts": 2}},
        {"task": "research.run", "name": "notes", "index": 3, "params": {"topic": "fög"}, "continue_on_failure": True},
        {
            "task": "story.generate",
            "name": "last",
            "index": 7,
            "params": {"topic": "a"},
            "target": "desk-1",
            "resources": [],
            "timeout": "1m30s",
            "retry_policy": {"max_attempts": 1, "base_delay": "3s"},
            "priority": 7,
            "budget": {"tokens": 5},
            "on_error": "fail",
        },
    ],
}


def make(site: Site, name: str = "nightly", **fields: Any) -> int:
    return site.app.client.schedules.create(name, {**NIGHTLY, **fields}).id


def stored(site: Site, schedule_id: int = 1) -> Schedule:
    return site.app.client.schedules.get(schedule_id)


def filled_in(text: str) -> dict[str, str]:
    """What the editor would send as it was shown."""
    form = text[text.index('<form id="editor"') : text.index("<datalist")]
    found: dict[str, str] = {}
    for tag in re.findall(r"<input [^>]*>", form):
        facts = dict(re.findall(r'([a-z-]+)="([^"]*)"', tag))
        if facts.get("type") not in ("radio", "checkbox") or " checked" in tag:
            found[facts["name"]] = html.unescape(facts.get("value", ""))
    for name, value in re.findall(r'<textarea [^>]*name="([^"]+)"[^>]*>\n(.*?)</textarea>', form, re.DOTALL):
        found[name] = html.unescape(value)
    for name, options in re.findall(r'<select [^>]*name="([^"]+)"[^>]*>(.*?)</select>', form, re.DOTALL):
        found[name] = (re.findall(r'value="([^"]+)" selected', options) or re.findall(r'value="([^"]+)"', options))[0]
    return found


def jobs_of(site: Site) -> list[Any]:
    with site.app.database.read() as tx:
        return job_views.list_jobs(tx, site.app.client.tenant_id, JobFilter(), 10, None).items


def work(site: Site) -> None:
    """Runs what can be run, in a thread: a browser has the event loop of this one."""
    worker = threading.Thread(target=site.drain)
    worker.start()
    join(worker)
