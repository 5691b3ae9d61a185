"""Copies people every night to two directories: an application on Headway. README.md says how to run it."""

from __future__ import annotations

import os
from typing import Any

import httpx

from headway import App, Context, Fail, Retry

PEOPLE = "select id, name, email from person where active = 1 order by id"

app = App()


# --- the work -----------------------------------------------------------------------------------------------------


@app.task("directory.export", timeout="10m")
def export(ctx: Context, directory: str, people: dict[str, Any]) -> dict[str, int]:
    """Writes each person to a directory. Writing a person twice changes nothing, so the step can be resumed."""
    rows = people["rows"]
    for count, person in enumerate(rows, 1):
        answer = ask("PUT", f"{directory}/people/{person['id']}", person)
        if answer.status_code >= 400:
            raise Fail(f"{directory} refused person {person['id']}: {answer.status_code} {answer.text[:200]}")
        ctx.report(count, len(rows), person["name"])
    return {"written": len(rows)}


@app.task("directory.confirm", timeout="10m")
def confirm(ctx: Context, directory: str, people: dict[str, Any]) -> dict[str, int]:
    """Reads a directory back and compares it with the people of the source."""
    found = ask("GET", f"{directory}/people").raise_for_status().json()
    missing = [person["id"] for person in people["rows"] if found.get(str(person["id"])) != person]
    if missing:
        raise Fail(f"{directory} does not have the persons {missing} as the source has them")
    return {"confirmed": len(people["rows"])}


def ask(method: str, path: str, body: object = None) -> httpx.Response:
    """Sends one request to the directory server. Temporary errors are retried."""
    url = os.environ.get("DIRECTORY_URL", "http://127.0.0.1:9100").rstrip("/")
    try:
        answer = httpx.request(method, f"{url}/{path}", json=body, timeout=30.0, trust_env=False)
    except httpx.TransportError as error:
        raise Retry(f"the directory server at {url} cannot be used: {error}") from error
    if answer.status_code == 503:
        raise Retry(f"the directory server at {url} is busy")
    return answer


# --- every night --------------------------------------------------------------------------------------------------

source: dict[str, Any] = {"$result": "read people"}

# A directory is a target: an export that fails holds it until a person has decided, and the night waits.
(
    app.plan("nightly sync", on_failure="stop")
    .then(app.step("sql", {"connection": "hr", "script": PEOPLE}, name="read people"))
    .then(
        export.using(name="export to AD", target="ad", retry=2).step(directory="ad", people=source),
        export.using(name="export to LDAP", target="ldap", retry=2).step(directory="ldap", people=source),
    )
    .then(
        confirm.using(name="confirm AD").step(directory="ad", people=source),
        confirm.using(name="confirm LDAP").step(directory="ldap", people=source),
    )
    .then(app.step("sql", {"connection": "hr", "script": "insert into sync default values"}, name="write the date"))
    .schedule("30 1 * * *", timezone="Europe/Berlin")
)
