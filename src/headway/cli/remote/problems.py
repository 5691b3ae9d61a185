"""What a server answers when it refuses, as the errors that the same command raises on a local database."""

from __future__ import annotations

from typing import Any

from headway import errors

NO_TOKEN = "give it with --token-file, --token or HEADWAY_TOKEN; an admin makes one with `headway tokens create`"
# What a server says of an address that it does not have, rather than of a thing.
_NOWHERE = "there is nothing at this address"
_REFUSED = frozenset(("limit_reached", "tenant_inactive"))


def error_of(url: str, status: int, problem: dict[str, Any]) -> errors.HeadwayError:
    """From a problem document; the same class by which the server chose the status."""
    code, detail = str(problem.get("code") or "error"), str(problem.get("detail") or problem.get("title") or "refused")
    found = problem.get("errors") or []
    facts: dict[str, Any] = {name: problem[name] for name in ("job_id", "failure_kind", "secrets") if name in problem}
    facts |= {"status": problem["state"]} if "state" in problem else {}
    kind = _kind(status, code)
    if kind is None:
        return errors.Unreachable(f"{url} answers {status}: {detail}", code=code)
    if status == 401:
        detail = f"{detail}: {NO_TOKEN}"
    if status == 404 and detail.startswith(_NOWHERE):
        return foreign(url, "it does not know what was asked for")
    if len(found) > 1:
        facts["problems"] = [f"{one['field']}: {one['problem']}" for one in found]
        facts["subject"] = "the request"
    return kind(detail, code=code, field=found[0]["field"] if found else None, **facts)


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
    return None


def foreign(url: str, why: str) -> errors.Unreachable:
    """An answer that no Headway of this version gives."""
    text = f"{url} does not answer like a Headway of this version ({why}): check the address, and both versions"
    return errors.Unreachable(text, code="foreign_server")
