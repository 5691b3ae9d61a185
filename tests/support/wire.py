"""What tests of the API ask of every answer, and somebody of another tenant who asks too."""

from __future__ import annotations

from typing import Any

import httpx
from pydantic import TypeAdapter

from tests.support.service import Site


def fits(shape: Any, answer: httpx.Response, status: int = 200) -> Any:
    """The body of an answer that has exactly the fields that the OpenAPI document promises."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    TypeAdapter(shape).validate_python(body, strict=True)
    return body


def refused(answer: httpx.Response, status: int, code: str, field: str | None = None) -> str:
    """What a problem says."""
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code), answer.text
    if field is not None:
        assert field in [one["field"] for one in problem["errors"]], answer.text
    return str(problem["detail"])


def all_pages(http: httpx.Client, path: str, **params: Any) -> list[dict[str, Any]]:
    """A list, by as many requests as it takes."""
    found: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        page = http.get(path, params={**params, **({"cursor": cursor} if cursor else {})}).json()
        assert len(page["items"]) <= params.get("limit", 50)
        found += page["items"]
        cursor = page["next"]
    return found


def neighbour(site: Site, name: str = "acme") -> httpx.Client:
    """An admin of another tenant. From now on everybody shows a token."""
    database = site.app.database
    script = f"insert into hw_tenant (name, created_at) values ('{name}', 0);"
    database.transact("add_tenant", lambda tx: database.execute_script(tx, script))
    return site.as_(site.token("admin", tenant=name, name="eve"))
