"""Filling in a form of a page as a browser would: with its cookie, its CSRF token and where to go back to."""

from __future__ import annotations

import html
import re

import httpx

_CSRF = re.compile(r'name="csrf" value="([^"]+)"')


def read(http: httpx.Client, path: str) -> str:
    """A page, as text."""
    answer = http.get(f"/ui{path}", follow_redirects=True)
    assert answer.status_code == 200, (answer.status_code, answer.text[:2_000])
    return answer.text


def fill(http: httpx.Client, path: str, action: str, /, **fields: str | list[str]) -> httpx.Response:
    """Opens a page, sends a form of it, and follows where it leads."""
    return post(http, action, csrf=csrf(read(http, path)), back=f"/ui{path}", **fields)


def fill_at(http: httpx.Client, root: str, path: str, action: str, **fields: str) -> httpx.Response:
    """The same where Headway is mounted inside another application."""
    text = http.get(f"{root}/ui{path}").text
    given = {"csrf": csrf(text), "back": f"{root}/ui{path}", **fields}
    return http.post(f"{root}/ui{action}", data=given, follow_redirects=True)


def post(http: httpx.Client, action: str, /, **fields: str | list[str]) -> httpx.Response:
    return http.post(f"/ui{action}", data=fields, follow_redirects=True)


def csrf(text: str) -> str:
    found = _CSRF.search(text)
    assert found is not None, "the page has no form"
    return html.unescape(found.group(1))


def log_in(http: httpx.Client, token: str) -> None:
    """From now on the cookie of a session says who comes."""
    answer = http.post("/ui/login", data={"csrf": csrf(read(http, "/login")), "token": token})
    assert answer.status_code == 303, answer.text[:2_000]
