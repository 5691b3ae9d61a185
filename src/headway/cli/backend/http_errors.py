"""Maps a server's error answers to the errors that the same command raises on a local database."""

from __future__ import annotations

from typing import Any

from headway import errors

NO_TOKEN = "give it with --token-file, --token or HEADWAY_TOKEN; an admin creates one with `headway tokens create`"
# The detail of a 404 for an unknown address, in contrast to that for a missing job or group.
_NOWHERE = "there is nothing at this address"
# Things that have a number, by the first part of their address.
_NUMBERED = {
    "jobs": "job",
    "job-groups": "group",
    "schedule-executions": "execution",
    "schedules": "schedule",
    "job-templates": "template",
    "tokens": "token",
    "webhooks": "webhook",
    "deliveries": "delivery",
}
_REFUSED = frozenset(("limit_reached", "tenant_inactive"))


def error_of(url: str, path: str, status: int, problem: dict[str, Any]) -> errors.HeadwayError:
    """Builds the error of a problem document, of the class from which the server derived the status."""
    code, detail = str(problem.get("code") or "error"), str(problem.get("detail") or problem.get("title") or "refused")
    found = problem.get("errors") or []
    facts: dict[str, Any] = {name: problem[name] for name in ("job_id", "failure_kind", "secrets") if name in problem}
    facts |= {"status": problem["state"]} if "state" in problem else {}
    kind = _kind(status, code)
    if kind is None:
        return errors.Unreachable(f"{url} answers {status}: {detail}", code=code)
    if status == 401:
        return kind(detail, hint=NO_TOKEN, code=code, **facts)
    if status == 404 and detail.startswith(_NOWHERE):
        return foreign(url, "it does not have the requested address")
    if len(found) > 1:
        facts["problems"] = [f"{entry['field']}: {entry['problem']}" for entry in found]
        facts["subject"] = "the request"
    if kind is errors.NotFound:
        facts["noun"] = _noun(path)
    return kind(detail, code=code, field=found[0]["field"] if found else None, **facts)


def _noun(path: str) -> str | None:
    """Returns the kind of thing that a request was about, if the server knows no better remedy than its list.

    That is so for a number. For a name the detail of the server may have a remedy, as for an unknown target of a list.
    """
    _, _, place = path.rpartition("/api/")
    kind, _, rest = place.partition("/")
    return _NUMBERED.get(kind) if rest.partition("/")[0].isdigit() else None


def missing_name(error: errors.NotFound, noun: str, name: str) -> errors.NotFound:
    """Returns the error of a schedule or template that a server does not find by name.

    The server appends the nearest name to these words; if there is none, the remedy is the list.
    """
    suggested = error.problem != f"there is no {noun} {name!r}"
    return errors.NotFound(error.problem, noun=None if suggested else noun, code=error.code, field=error.field)


def _kind(status: int, code: str) -> type[errors.HeadwayError] | None:
    match status:
        case 404 | 410:
            return errors.NotFound
        case 401 | 403:
            return errors.Refused
        case 409 | 412:
            return errors.Refused if code in _REFUSED else errors.WrongState
        case 424:
            return errors.JobFailed
        case 400 | 405 | 413 | 415 | 422:
            return errors.BadInput
        case 503 if code == errors.CommitUnknown.code:
            return errors.CommitUnknown
    return None


def foreign(url: str, why: str) -> errors.Unreachable:
    """Builds the error for an answer that no Headway server of this version gives."""
    text = f"{url} does not answer like a Headway of this version ({why}): check the address, and both versions"
    return errors.Unreachable(text, code="foreign_server")
