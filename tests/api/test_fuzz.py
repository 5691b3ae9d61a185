"""Schemathesis over the whole OpenAPI document: no answer of 500 or more, none that the document does not describe."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from headway.api.openapi import document
from tests.api.test_bad_input import site_of
from tests.support.service import Site

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
STORY = {"task": "story.generate", "params": {"topic": "fog"}}
# They go on for ever: tests/api/test_event_streams.py reads them.
STREAMS = r"^(/api/events|/api/jobs/\{job_id\}/live)$"
EXAMPLES = 40
counted = {"requests": 0}


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def stocked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server with one of everything, so that small numbers are found."""
    with site_of(request, tmp_path_factory) as site:
        for body in (STORY, {**STORY, "target": "0"}, {"task": "fails", "target": "1"}):
            assert site.http.post("/api/jobs", json=body).status_code == 201
        site.drain()
        site.http.post("/api/job-groups", json={"name": "g", "mode": "parallel", "jobs": [STORY, STORY]})
        site.http.post("/api/job-templates", json={"name": "t", **STORY})
        site.http.post("/api/schedules", json={"name": "s", "cron": "30 2 * * *", "steps": [STORY]})
        site.http.post("/api/schedules/1/run")
        yield site
        print(f"\n{counted['requests']} requests")


def operations() -> list[Any]:
    found = schemathesis.openapi.from_dict(json.loads(document())).exclude(path_regex=STREAMS)
    return [one.ok() for one in found.get_all_operations() if isinstance(one, Ok)]


@pytest.mark.parametrize("operation", operations(), ids=lambda one: one.label)
def test_no_answer_is_a_mistake_of_ours(stocked: Site, operation: Any) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        counted["requests"] += 1
        answer = case.call(base_url=stocked.url, timeout=30)
        case.validate_response(answer, checks=CHECKS)

    ask()
