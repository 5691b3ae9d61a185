"""The page Health names what somebody should look at, each with what to do and where."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest

from headway.engine.monitoring.check import LISTED
from headway.store.db import Tx
from headway.store.webhooks import endpoints
from headway.testing import FrozenClock
from tests.support.editor import make
from tests.support.forms import read
from tests.support.life import Life
from tests.support.service import Site, serving

pytestmark = pytest.mark.shown

HOSTILE = "<script>alert('x')</script>"


def rows(text: str) -> dict[str, str]:
    """What is said of each thing, by the key of its row."""
    found = re.findall(r'<tr id="look-([^"]+)"[^>]*>(.*?)</tr>', text, re.DOTALL)
    return {key: html.unescape(row) for key, row in found}


def test_all_is_well_and_what_that_means(site: Site) -> None:
    worker = site.worker()
    worker.register()
    try:
        text = read(site.http, "/health")
        assert "All is well" in text
        assert "Checked for workers that are late with their lease, gone or stuck, for jobs that need" in text
        assert "and for failing webhooks" in text
        assert rows(text) == {}
    finally:
        worker.close()
    assert "Nothing is held, late or failing" in read(site.http, "/health"), "no worker is alive, which is said below"


def test_held_jobs_and_paused_targets_are_named(site: Site) -> None:
    held = site.app.enqueue("fails", {"why": HOSTILE}, target="desk/1").id
    site.drain()
    site.app.enqueue("research.run", {"topic": "fog"}, target="desk/1")
    site.app.client.pause_target("desk/1", note=HOSTILE)
    text = read(site.http, "/health")
    assert "2 problems need a person" in text
    assert HOSTILE not in text
    found = rows(text)
    job, (target,) = found[f"job-{held}"], [row for key, row in found.items() if key.startswith("target-")]
    for part in (
        f'href="/ui/jobs/{held}"',
        "#1 fails",
        f"ERROR for 0 s: {HOSTILE}",
        "It holds the target desk/1, 1 job",
    ):
        assert part in job, part
    assert "Resume, resolve, retry, release or cancel it" in job
    assert 'href="/ui/targets/show?name=desk%2F1"' in target
    assert "Resume the target when it is safe to use" in target
    site.app.client.release(held)
    site.app.client.resume_target("desk/1")
    assert rows(read(site.http, "/health")) == {}


def test_webhooks_that_fail_are_named(site: Site) -> None:
    good, bad, off = (site.app.client.webhooks.create(f"https://{name}.example/hook").id for name in ("a", "b", "c"))
    database, tenant_id = site.app.database, site.app.client.tenant_id

    def work(tx: Tx) -> None:
        for number in (bad, off):
            endpoints.store(tx, replace(endpoints.lock(tx, tenant_id, number), failures=3))

    database.transact("fail", work)
    site.app.client.webhooks.edit(off, enabled=False)
    found = rows(read(site.http, "/health"))
    assert set(found) == {f"webhook-{bad}"}
    assert f'href="/ui/webhooks/{bad}"' in found[f"webhook-{bad}"]
    assert "https://b.example/…" in found[f"webhook-{bad}"]  # viewers see this page too
    assert "It failed 3 times in a row" in found[f"webhook-{bad}"]
    assert "send a test" in found[f"webhook-{bad}"]
    assert good not in (bad, off)


def test_overdue_ticks_and_late_workers_are_named(database_url: str) -> None:
    clock = FrozenClock("2026-01-01T00:00:00Z")
    with serving(database_url, clock=clock) as site, Life(database_url, clock=clock):
        number = make(site, f"hourly {HOSTILE}", cron="@hourly", timezone="UTC")
        make(site, "daily", cron="0 23 * * *", timezone="UTC")
        assert rows(read(site.http, "/health")) == {}
        clock.advance("65m")
        text = read(site.http, "/health")
        assert HOSTILE not in text
        found = rows(text)
        tick, worker = found.pop(f"schedule-{number}"), next(iter(found.values()))
        assert len(found) == 1
        for part in (f'href="/ui/schedules/{number}"', "its tick was due 5 min ago", "headway up --roles scheduler"):
            assert part in tick, part
        for part in ('href="/ui/workers"', "silent on elsewhere, process 1", "Check that its host is up"):
            assert part in worker, part


def test_of_each_kind_no_more_are_named_than_the_page_says(database_url: str) -> None:
    clock = FrozenClock("2026-01-01T00:00:00Z")
    with serving(database_url, clock=clock) as site, Life(database_url, clock=clock) as life:
        for _ in range(LISTED):
            life.new_worker()
        clock.advance("65m")
        text = read(site.http, "/health")
        assert f"At most {LISTED} of each kind are shown." in text
        assert len([key for key in rows(text) if key.startswith("worker-")]) == LISTED


def test_a_tenant_sees_its_own(site: Site) -> None:
    site.app.client.tenants.create("acme")
    held = site.app.enqueue("fails", target="desk-1").id
    site.drain()
    assert f"job-{held}" in rows(read(site.as_(site.token("viewer")), "/health"))
    assert rows(read(site.as_(site.token("viewer", tenant="acme")), "/health")) == {}
