"""How a process says that it lives, whether it can work, and what it counts."""

from __future__ import annotations

import pytest

from headway.engine.monitoring.readiness import Health, Reason
from tests.support.service import Site

STORY = {"task": "story.generate", "params": {"topic": "fog"}}


def test_a_process_says_how_it_stands(site: Site) -> None:
    assert site.http.get("/healthz").json() == {"status": "alive"}
    ready = site.http.get("/readyz")
    assert (ready.status_code, ready.json()["reasons"]) == (200, [])
    assert "no worker is alive" in ready.json()["warnings"][0]
    site.http.get("/metrics")
    site.http.post("/api/jobs", json=STORY)
    site.http.post("/api/jobs", json={"task": "fails"})
    site.drain()
    site.http.post("/api/jobs", json=STORY)
    text = site.http.get("/metrics").text
    assert 'headway_finished_total{outcome="completed"} 1.0' in text
    assert 'headway_failures_total{kind="EXCEPTION"} 1.0' in text
    depth = next(line for line in text.splitlines() if line.startswith("headway_queue_depth{"))
    assert 'lane="global"' in depth


def test_a_process_that_does_not_know_the_schema_is_not_ready(site: Site) -> None:
    site.app.database.transact("migrate", lambda tx: tx.run("record_migration", version=999))
    refused = site.http.get("/readyz")
    assert refused.status_code == 503
    assert "the database has schema 999" in refused.json()["reasons"][0]
    assert site.http.get("/healthz").status_code == 200


def test_strangers_learn_codes_and_neither_hosts_nor_files(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    told = "PostgreSQL at db.internal:5432 cannot be reached: connection refused"
    monkeypatch.setattr(site.server.service, "health", lambda: Health([Reason("database_unreachable", told)]))
    assert site.http.get("/readyz").json()["reasons"] == [told]  # everything is open here, as long as there is no token
    known = site.as_(site.token("viewer"))
    stranger = site.http.get("/readyz")
    assert (stranger.status_code, stranger.json()["reasons"]) == (503, ["database_unreachable"])
    assert "db.internal" not in stranger.text
    assert known.get("/readyz").json()["reasons"] == [told]


def test_who_comes_while_the_database_is_away_is_a_stranger(site: Site) -> None:
    site.app.database.close()
    found = site.http.get("/readyz")
    assert found.status_code == 503
    assert found.json()["reasons"] == ["database_unreadable"]
