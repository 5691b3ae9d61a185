"""The API keeps its contract: what clients of the last release rely on does not change without a note."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from headway import __version__
from headway.api.openapi import document
from scripts.api_contract import breaking, contract_of, released
from tests.docs.pages import ROOT
from tests.support.service import Site

NOW = contract_of(json.loads(document()))
PAGE = ROOT / "docs" / "versions.md"


def test_no_breaking_change_since_the_last_release_without_a_note() -> None:
    """A change that breaks clients needs its line, word for word, in the table of docs/versions.md."""
    noted = PAGE.read_text("utf-8")
    assert [change for change in breaking(released(), NOW) if f"`{change}`" not in noted] == []


def test_no_note_is_left_of_a_change_that_is_none() -> None:
    _, _, table = PAGE.read_text("utf-8").partition("| Change |")
    noted = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
    assert sorted(set(noted) - set(breaking(released(), NOW))) == []


def _job(contract: Any, part: str = "answered", name: str = "Job") -> Any:
    return contract[part][name]


BREAKING: dict[str, Callable[[Any], object]] = {
    "operation GET /api/jobs is gone": lambda new: new["operations"].pop("GET /api/jobs"),
    "GET /api/jobs.query status is gone": lambda new: new["operations"]["GET /api/jobs"]["parameters"].pop(
        "query status"
    ),
    "Job.rank is gone": lambda new: _job(new).pop("rank"),
    "Job.job_id may be string": lambda new: _job(new)["job_id"].update(types=["string"]),
    "NewJob.task is gone": lambda new: _job(new, "asked", "NewJob").pop("task"),
    "NewJob.colour is new and required": lambda new: _job(new, "asked", "NewJob").update(
        colour={"types": ["string"], "required": True}
    ),
    "NewJob.on_lost no longer takes fail": lambda new: _job(new, "asked", "NewJob")["on_lost"]["values"].remove("fail"),
    "NewJob.priority became required": lambda new: _job(new, "asked", "NewJob")["priority"].update(required=True),
}


@pytest.mark.parametrize("change", BREAKING)
def test_a_breaking_change_is_found(change: str) -> None:
    new = copy.deepcopy(NOW)
    BREAKING[change](new)
    assert breaking(NOW, new) == [change]


def test_additions_break_nothing() -> None:
    new = copy.deepcopy(NOW)
    new["operations"]["GET /api/more"] = {"parameters": {}, "body": [], "answer": {}}
    _job(new)["more"] = {"types": ["string"], "required": True}
    _job(new)["status"]["values"].append("NEW")
    _job(new, "asked", "NewJob")["more"] = {"types": ["string"], "required": False}
    assert breaking(NOW, new) == []


@pytest.mark.parametrize("path", ["/healthz", "/api/jobs", "/api/no/such/address", "/ui/"])
def test_every_answer_names_the_version(site: Site, path: str) -> None:
    assert site.http.get(path).headers["headway-version"] == __version__
