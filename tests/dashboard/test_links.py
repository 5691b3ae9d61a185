"""Sentences in which jobs and executions are links, whatever else they say."""

from __future__ import annotations

import pytest

from headway.dashboard.links import EXECUTIONS, linked

pytestmark = pytest.mark.shown


def at(path: str) -> str:
    return f"/ui{path}"


def test_jobs_are_links_and_the_rest_is_text() -> None:
    made = linked("behind job 12 of <b>job x</b>, job 0 and job 7", at)
    assert made == (
        'behind <a href="/ui/jobs/12">job 12</a> of &lt;b&gt;job x&lt;/b&gt;, job 0 and <a href="/ui/jobs/7">job 7</a>'
    )


def test_a_message_leads_to_the_execution_it_is_about_unless_one_is_there() -> None:
    text = "Execution 3 of <i> was started after execution 2."
    assert linked(text, at, EXECUTIONS) == (
        '<a href="/ui/executions/3">Execution 3</a> of &lt;i&gt; was started after execution 2.'
    )
    assert linked(text, at, EXECUTIONS, here="/ui/executions/3") == text.replace("<i>", "&lt;i&gt;")
