"""events.md names every kind of event that the code makes, and the glossary every word that the code shows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from headway.cli.tree import build
from headway.model.access.permissions import Role
from headway.model.jobs.outcome import FailureKind
from headway.model.jobs.states import State
from headway.model.values import state_names
from headway.model.webhooks.webhook import EVENTS, TEST
from tests.docs.pages import ROOT, prose

SOURCE = ROOT / "src" / "headway"
THINGS = (
    *("job", "group", "execution", "schedule", "tick", "template", "worker", "caller", "tenant", "lane"),
    *("concurrency", "target", "reservation", "token", "webhook", "delivery", "history"),
)
# Names with a dot that are no event: files, parts of settings, loggers.
_OTHER = re.compile(r".+\.(html|log|limits?|policy|targets)")
_KIND = re.compile(rf"(?:{'|'.join(THINGS)})\.[a-z_]+(?:\.[a-z_]+)?")
# The modules that make kinds from a noun and a verb.
_VERBS = {
    "schedule": ("engine/client/schedules.py",),
    "template": ("engine/client/templates.py", "store/templates.py"),
    "webhook": ("engine/client/webhooks.py", "store/webhooks/endpoints.py"),
    "tenant": ("engine/client/tenants.py", "store/access/tenants.py"),
}
_RECORDERS = {"record", "_record", "save", "_event", "_change"}


def documented() -> set[str]:
    """The kinds in the tables of events.md."""
    lines = [line.split(" | ")[0] for line in prose(ROOT / "docs" / "events.md") if line.startswith("| `")]
    return {kind for line in lines for kind in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", line)}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def literals() -> set[str]:
    """Every text of the code that is a kind of event."""
    found = set[str]()
    for file in SOURCE.rglob("*.py"):
        texts = (node.value for node in ast.walk(tree_of(file)) if isinstance(node, ast.Constant))
        found |= {text for text in texts if isinstance(text, str) and _KIND.fullmatch(text)}
    for file in SOURCE.rglob("*.sql"):
        found |= {text for text in re.findall("'([a-z_.]+)'", file.read_text("utf-8")) if _KIND.fullmatch(text)}
    return {kind for kind in found if not _OTHER.fullmatch(kind)}


def verbs(path: str) -> Iterator[str]:
    """The past participles that a module hands to a function that records an event."""
    for node in ast.walk(tree_of(SOURCE / path)):
        if isinstance(node, ast.Call) and _name(node.func) in _RECORDERS:
            for argument in node.args:
                for part in ast.walk(argument) if isinstance(argument, ast.Constant | ast.IfExp) else ():
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield part.value


def _name(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def composed() -> set[str]:
    """The kinds that are made from a noun and a verb."""
    made = ((noun, verb) for noun, paths in _VERBS.items() for path in paths for verb in verbs(path))
    return {f"{noun}.{verb}" for noun, verb in made if re.fullmatch("[a-z]+ed", verb)}


def words_of(page: str) -> str:
    return " ".join(line for line in prose(ROOT / "docs" / page) if line.startswith("| "))


def glossary_words() -> set[str]:
    """The words in the first column of the glossary's tables, in lower case."""
    cells = [line.split("|")[1] for line in prose(ROOT / "docs" / "glossary.md") if line.startswith("| ")]
    return {word.strip(" `").lower() for cell in cells for word in cell.split(",")}


# --- events -------------------------------------------------------------------------------------------------------


def test_every_kind_that_the_code_makes_is_documented() -> None:
    public = {*EVENTS, TEST} - documented()
    assert (literals() | composed()) - documented() - public == set()


def test_every_documented_kind_is_made_by_the_code() -> None:
    made = literals() | composed()
    text = "\n".join(file.read_text("utf-8") for file in sorted([*SOURCE.rglob("*.py"), *SOURCE.rglob("*.sql")]))
    for kind in documented() - made:
        noun, _, verb = kind.partition(".")
        assert noun in THINGS, kind
        assert re.search(rf"""["']{verb}["']""", text), f"{kind}: the code has no {verb!r}"


def test_every_thing_of_an_event_is_listed() -> None:
    row = next(line for line in prose(ROOT / "docs" / "events.md") if line.startswith("| `thing`"))
    listed = set(re.findall("`([a-z]+)`", row.split(" | ")[1]))
    callers = {"caller"}  # the events of callers are those of a worker
    assert listed == set(THINGS) - callers
    assert {kind.partition(".")[0] for kind in documented()} == set(THINGS) - {"tick"}


def test_the_check_of_events_can_fail() -> None:
    assert {"job.claimed", "lane.created", "schedule.created", "schedule.enabled", "webhook.rotated"} <= (
        literals() | composed()
    )
    assert "job.html" not in literals()
    assert not _KIND.fullmatch("shop.greet")


# The entities of the documents that Headway was made from.
ENTITIES = (
    *("Job", "JobRun", "JobTemplate", "JobGroup", "Schedule", "ScheduleExecution", "WorkerTask", "Activity"),
    *("SynchronisationWorkerTask", "RunProfile", "ConnectedSystem", "ExecutionMode", "ContinueOnFailure", "StepIndex"),
    *("step group", "initiator triad", "ScheduleTrigger", "QueueManager", "Dispatcher", "Executor", "APScheduler"),
    *("PersistenceAdapter", "WebhookService", "RetryController", "DirectExecutionHandler", "DirectExecHandler"),
    *("DirectReservation", "ConcurrencyPolicy", "GroupFailurePolicy", "Worker", "Lease", "Target", "TOKEN_LIMIT"),
    *("lease_owner", "lease_expires_at", "cancel_requested", "claim_next_job", "expire_stale_running_jobs"),
    *("WORKER_ID", "Heartbeat", "Reservation", "Webhook", "Position", "Priority", "Exhausted", "permanently failed"),
    *("NextRunTime", "InProgress", "JIM.Scheduler", "JIM.Worker", "JIM.Web", "Retry chain", "Recovery"),
)


# --- the glossary -------------------------------------------------------------------------------------------------


def test_the_glossary_has_every_status_and_every_old_word() -> None:
    lines = prose(ROOT / "docs" / "glossary.md")
    rows = [line.split("|")[1].strip() for line in lines if re.match(r"\| [A-Z]+ \|", line)]
    assert [row for row in rows if row in State.__members__] == list(State.__members__)
    there = {word.upper() for word in glossary_words()}
    assert {*state_names._ALSO, state_names.STOPPING.upper()} <= there
    assert {name.upper() for name in state_names._STEP_KINDS} <= there


def test_the_glossary_has_every_entity_of_the_documents() -> None:
    known = glossary_words()
    assert [name for name in ENTITIES if name.lower() not in known] == []


def test_the_glossary_has_every_noun_of_the_commands_and_of_the_events() -> None:
    families = {name for name, command in build().commands.items() if hasattr(command, "commands")}
    nouns = {name.removesuffix("s") for name in families - {"db", "config", "service", "workers"}}
    known = glossary_words()
    assert sorted(noun for noun in nouns | {"worker"} if noun not in known) == []
    assert sorted(thing for thing in set(THINGS) - {"caller", "history"} if thing not in known) == []


def test_the_glossary_has_every_failure_kind_and_role() -> None:
    text = words_of("glossary.md")
    assert [kind for kind in FailureKind.__members__ if f"`{kind}`" not in text] == []
    assert [role.name.lower() for role in Role if f"`{role.name.lower()}`" not in text] == []
