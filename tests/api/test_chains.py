"""Retry chains over real HTTP: the whole chain with the job marked, exhausted jobs and jobs that stop as filters."""

from __future__ import annotations

from typing import Any

from tests.support.service import Site

ONCE = {
    "task": "command",
    "params": {"argv": ["false"]},
    "retry_policy": {"max_attempts": 1, "base_delay": 0, "jitter": 0},
}


def chain(site: Site, job_id: int, **query: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = site.http.get(f"/api/jobs/{job_id}/chain", params=query).json()["items"]
    return items


def numbers(items: list[dict[str, Any]]) -> list[int]:
    return [item["job_id"] for item in items]


def exhausted_chain(site: Site) -> list[int]:
    """Makes a chain of five: a job, its retry, a retry by hand with its own, and a second one by hand; returns it."""
    first = site.http.post("/api/jobs", json=ONCE).json()["job_id"]
    site.drain()
    second = numbers(chain(site, first))[-1]
    third = site.http.post(f"/api/jobs/{second}/retry").json()["job_id"]
    site.drain()
    fourth = numbers(chain(site, first))[-1]
    fifth = site.http.post(f"/api/jobs/{second}/retry").json()["job_id"]
    return [first, second, third, fourth, fifth]


def test_every_job_of_a_chain_shows_the_whole_chain(site: Site) -> None:
    site.http.post("/api/jobs", json={"task": "research.run", "params": {"topic": "other"}})
    members = exhausted_chain(site)
    first, second, third, *_ = members
    for job_id in members:
        found = chain(site, job_id)
        assert numbers(found) == members
        assert [item["job_id"] for item in found if item["asked"]] == [job_id]
        assert [item["automatic"] for item in found] == [False, True, False, True, False]
        assert [item["retry_of"] for item in found] == [None, first, second, third, second]


def test_a_chain_has_pages(site: Site) -> None:
    members = exhausted_chain(site)
    seen: list[int] = []
    cursor: str | None = ""
    while cursor is not None:
        place = f"&cursor={cursor}" if cursor else ""
        page = site.http.get(f"/api/jobs/{members[3]}/chain?limit=2{place}").json()
        seen, cursor = [*seen, *numbers(page["items"])], page["next"]
    assert seen == members
    assert site.http.get(f"/api/jobs/{members[0]}/chain", params={"cursor": "x"}).status_code == 422


def test_the_automatic_retries_after_a_job_are_asked_for(site: Site) -> None:
    first, second, third, fourth, _ = exhausted_chain(site)
    assert numbers(chain(site, first, after=True)) == [second]
    assert numbers(chain(site, third, after=True)) == [fourth]
    assert numbers(chain(site, second, after=True)) == []


def test_exhausted_jobs_are_a_filter(site: Site) -> None:
    _, second, _, fourth, fifth = exhausted_chain(site)
    listed = site.http.get("/api/jobs", params={"exhausted": "true"}).json()["items"]
    assert numbers(listed) == [fourth, second]
    assert numbers(site.http.get("/api/jobs", params={"exhausted": "true", "status": "queued"}).json()["items"]) == []
    others = numbers(site.http.get("/api/jobs", params={"exhausted": "false"}).json()["items"])
    assert {fourth, second}.isdisjoint(others)
    assert fifth in others
    wish = {"filter": {"exhausted": True}, "action": "retry", "expected_count": 2}
    assert site.http.post("/api/jobs/bulk", json=wish).status_code == 200
    page = site.http.get("/ui/history", params={"exhausted": "1"}).text
    assert f'id="run-{fourth}"' in page
    assert f'id="run-{second - 1}"' not in page
