"""The documentation is whole: links lead somewhere, everything public is mentioned, nothing unbuilt is praised."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import headway
from headway import errors, testing
from headway.config.schema import KNOWN
from headway.engine.execution.context import Context
from headway.engine.tasks.task import JobOptions, make_options
from headway.model.jobs.job import ON_ERROR, ON_LOST, ON_SHUTDOWN
from headway.model.jobs.outcome import FailureKind
from headway.model.jobs.states import State, Verb
from tests.docs.pages import PAGES, ROOT, anchors, links, page_name

SOURCE = ROOT / "src" / "headway"
_PICTURE = re.compile(r"!\[[^\]]+\]\(([^)\s]+)\)")
_KIND = re.compile(r"[\"'](?:job|worker|tenant|lane|target|reservation|token)\.[a-z_]+[\"']")


def text_of(*names: str) -> str:
    return "\n".join((ROOT / name).read_text("utf-8") for name in names)


def mentions(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", text) is not None


# --- links --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=page_name)
def test_links_lead_somewhere(page: Path) -> None:
    lost = []
    for link in links(page):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert lost == []


def test_pictures_are_there_and_small() -> None:
    found = [(page.parent / name).resolve() for page in PAGES for name in _PICTURE.findall(page.read_text("utf-8"))]
    assert {path.name for path in found} == {path.name for path in (ROOT / "docs" / "pictures").iterdir()}
    assert [path.name for path in found if path.stat().st_size > 250_000] == []


def test_every_page_can_be_reached() -> None:
    found, todo = set[Path](), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in found:
            continue
        found.add(page)
        paths = [(page.parent / link.partition("#")[0]).resolve() for link in links(page) if "://" not in link]
        todo += [path for path in paths if path.suffix == ".md" and path.exists()]
    assert [page_name(page) for page in PAGES if page not in found] == []


def test_every_decision_is_in_the_list_under_its_title() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = (folder / "README.md").read_text("utf-8")
    for page in sorted(folder.glob("[0-9]*.md")):
        number, title = page.read_text("utf-8").splitlines()[0].removeprefix("# ").split(": ", 1)
        assert page.name.startswith(f"{number}-")
        assert f"| [{number}]({page.name}) | {title} |" in listed


# --- everything public is there -----------------------------------------------------------------------------------


def test_every_setting_is_explained() -> None:
    page = text_of("docs/settings.md")
    assert [name for name, setting in KNOWN.items() if setting is not None and f"| `{name}` |" not in page] == []


def test_every_option_of_a_task_is_explained() -> None:
    options = {"isolation", "priority", *_parameters(make_options)} - {"base"}
    assert [name for name in sorted(options) if f"| `{name}` |" not in text_of("docs/tasks.md")] == []


def test_every_wish_is_explained() -> None:
    wishes = _parameters(JobOptions.__init__) - {"self", "spec", "options"}
    assert [name for name in sorted(wishes) if not mentions(text_of("docs/tasks.md"), name)] == []
    later = ("delay", "not_before", "expires_at", "key", "hold", "connection")
    assert [name for name in later if not mentions(text_of("docs/jobs.md"), name)] == []


def test_every_choice_is_explained() -> None:
    page = text_of("docs/failures.md")
    assert [one for one in {*ON_LOST, *ON_ERROR, *ON_SHUTDOWN} if f'"{one}"' not in page] == []


def _parameters(function: object) -> set[str]:
    code = function.__code__  # type: ignore[attr-defined]
    return set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def test_every_attribute_of_the_context_is_explained() -> None:
    page = text_of("docs/tasks.md")
    names = [name for name in vars(Context) if not name.startswith("_")]
    assert [name for name in names if f"`ctx.{name}" not in page] == []


def test_every_public_name_is_mentioned() -> None:
    everything = text_of(*map(page_name, PAGES))
    assert [name for name in headway.__all__ if not mentions(everything, name)] == []
    assert [name for name in testing.__all__ if not mentions(text_of("docs/testing.md"), name)] == []


def test_every_error_is_explained() -> None:
    page = text_of("docs/failures.md")
    kinds = [
        name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.HeadwayError)
    ]
    assert [name for name in kinds if f"| `{name}` |" not in page] == []


def test_every_status_is_explained() -> None:
    for page in ("docs/glossary.md", "docs/jobs.md"):
        assert [state.name for state in State if not mentions(text_of(page), state.name)] == []


def test_every_verb_of_people_is_explained() -> None:
    people = {Verb.CANCEL, Verb.INTERRUPT, Verb.RESUME, Verb.RESOLVE, Verb.RELEASE, Verb.RETRY}
    assert [verb.value for verb in people if f"| {verb.value} |" not in text_of("docs/failures.md")] == []


def test_every_failure_kind_is_explained() -> None:
    page = text_of("docs/failures.md")
    assert [kind.value for kind in FailureKind if f"| {kind.value} |" not in page] == []


def test_every_kind_of_event_is_explained() -> None:
    files = [file for part in ("model", "store", "engine") for file in (SOURCE / part).rglob("*.*")]
    texts = [file.read_text("utf-8") for file in files if file.suffix in (".py", ".sql")]
    kinds = {kind.strip("\"'") for text in texts for kind in _KIND.findall(text)}
    assert len(kinds) > 20
    page = text_of("docs/events.md")
    assert [kind for kind in sorted(kinds) if f"`{kind}`" not in page] == []


# --- nothing that is not there ------------------------------------------------------------------------------------


def test_never_exactly_once_execution() -> None:
    for page in [*PAGES, ROOT / "CHANGELOG.md"]:
        assert not re.search(r"exactly[- ]once (execution|processing|delivery)", page.read_text("utf-8"), re.IGNORECASE)


def test_the_public_words_are_the_same_everywhere() -> None:
    words = (
        "Accepted jobs survive process kill and, with default settings, power loss on storage that honours sync."
        " Every job has exactly one recorded outcome."
        " A retried job runs at least once more: pass the fence on or be idempotent."
    )
    for name in ("README.md", "docs/recovery.md"):
        assert words in " ".join(text_of(name).split())
