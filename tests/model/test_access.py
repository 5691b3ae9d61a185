"""Who may do what: the table of verbs, roles and tasks, cell by cell."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from headway.errors import BadInput, NotFound, Refused
from headway.model.access import authority, permissions
from headway.model.access.authority import ADMIN_TASKS, Authority, StepParams
from headway.model.access.cookies import CookieKey
from headway.model.access.permissions import Role, Visitor
from headway.model.jobs.job import Actor
from headway.model.schedules.definition import Definition
from headway.model.templates import Template
from headway.tasks import BUILT_IN

OPERATOR, ADMIN = "operator", "admin"
KINDS = {"own": "story.generate", "http": "http", **{task: task for task in sorted(ADMIN_TASKS)}}


def visitor(role: str, *, system: bool = False) -> Visitor:
    return Visitor(Actor("token", "1", "ci"), "default", 1, Role(role), system)


def caller(role: str, kinds: frozenset[str] = frozenset(authority.KINDS)) -> Authority:
    return Authority("ci", Role(role), kinds, "shop")


def template(task: str, *open_params: str) -> Template:
    definition = json.dumps({"params": {"argv": ["backup"]}, "open_params": open_params})
    return Template(3, 1, "backup", task, definition, 0, "{}", None, 1)


def schedule(task: str, *, through_template: bool) -> list[str]:
    what = {"template": "backup"} if through_template else {"steps": [{"task": "http"}, {"task": task}]}
    return permissions.tasks_of(Definition.parse({"cron": "@daily", **what}), lambda _: task)


# Each verb, and the least role that may do it: with an ordinary task, and with one that is an admin's.
VERBS: dict[str, tuple[Callable[[Authority, str], None], str, str]] = {
    "create a job": (authority.check_task, OPERATOR, ADMIN),
    "call it directly": (authority.check_task, OPERATOR, ADMIN),
    "create a group with it": (lambda who, task: authority.check_tasks(who, ["http", task]), OPERATOR, ADMIN),
    "create or edit a template of it": (authority.check_task, OPERATOR, ADMIN),
    "give a template another task": (lambda who, task: authority.check_tasks(who, [task, "http"]), OPERATOR, ADMIN),
    "create or edit a schedule of it": (
        lambda who, task: authority.check_tasks(who, schedule(task, through_template=False)),
        OPERATOR,
        ADMIN,
    ),
    "create a schedule of a template": (
        lambda who, task: authority.check_tasks(who, schedule(task, through_template=True)),
        OPERATOR,
        ADMIN,
    ),
    "run a template as it is": (
        lambda who, task: authority.check_from_template(who, template(task)),
        OPERATOR,
        OPERATOR,
    ),
    "run it with an open param": (
        lambda who, task: authority.check_from_template(who, template(task, "argv"), ["argv"]),
        OPERATOR,
        OPERATOR,
    ),
    "run it with another param": (
        lambda who, task: authority.check_from_template(who, template(task, "argv"), ["argv", "env"]),
        OPERATOR,
        ADMIN,
    ),
    "run it later, more urgently": (
        lambda who, task: authority.check_from_template(
            who, template(task), options={"priority": 3, "delay": "1m", "key": "a"}
        ),
        OPERATOR,
        OPERATOR,
    ),
    "run it with options not given": (
        lambda who, task: authority.check_from_template(who, template(task), options={"target": None, "timeout": None}),
        OPERATOR,
        OPERATOR,
    ),
    "run it elsewhere": (
        lambda who, task: authority.check_from_template(who, template(task), options={"target": "desk-1"}),
        OPERATOR,
        ADMIN,
    ),
    "run it without its resources": (
        lambda who, task: authority.check_from_template(who, template(task), options={"resources": []}),
        OPERATOR,
        ADMIN,
    ),
    "retry, resume, cancel, edit its priority": (
        lambda who, task: authority.check_new_params(who, []),
        OPERATOR,
        OPERATOR,
    ),
    "retry it with other params": (lambda who, task: authority.check_new_params(who, [task]), OPERATOR, ADMIN),
    "edit its params": (lambda who, task: authority.check_new_params(who, [task]), OPERATOR, ADMIN),
    "run its schedule with params": (
        lambda who, task: authority.check_new_params(who, schedule(task, through_template=True)),
        OPERATOR,
        ADMIN,
    ),
}


@pytest.mark.parametrize("role", [OPERATOR, ADMIN])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verb", VERBS)
def test_roles_and_tasks(verb: str, kind: str, role: str) -> None:
    check, ordinary, administrative = VERBS[verb]
    needed = administrative if KINDS[kind] in ADMIN_TASKS else ordinary
    if Role(role).may(Role(needed)):
        check(caller(role), KINDS[kind])
        return
    with pytest.raises(Refused) as caught:
        check(caller(role), KINDS[kind])
    assert (caught.value.code, caught.value.facts["task"]) == ("admin_only", KINDS[kind])


@pytest.mark.parametrize("task", sorted(ADMIN_TASKS))
def test_a_tenants_admin_gives_only_the_kinds_that_are_open(task: str) -> None:
    authority.check_task(caller(ADMIN, frozenset({task})), task)
    with pytest.raises(Refused, match=f"headway tenants set shop --allow {task}") as caught:
        authority.check_task(caller(ADMIN, frozenset(authority.KINDS) - {task}), task)
    assert caught.value.code == "kind_closed"


def test_influence_follows_results_through_every_step() -> None:
    steps = [
        StepParams("a", 0, "story.generate", "{}"),
        StepParams("b", 1, "http", '{"body": {"x": [{"$result": "a"}]}}'),
        StepParams("c", 2, "command", '{"argv": ["cat"], "stdin": {"$result": "b"}}'),
        StepParams("d", 2, "command", '{"argv": ["cat"], "stdin": {"$result": "b"}}', ("stdin",)),
        StepParams("e", 1, "story.generate", "{}"),  # reads ctx.results, as every task of an app may
        StepParams("f", 2, "sql", '{"params": {"$result": "e"}}'),
        StepParams("g", 2, "command", '{"argv": ["date"]}'),
    ]
    found = {(one.step, one.param) for one in authority.influenced("a", steps)}
    assert found == {("c", "stdin"), ("f", "params")}
    assert authority.influenced("g", steps) == []


def test_every_built_in_task_is_an_admins_but_http() -> None:
    """A new one that runs what its params say has to be put on the list."""
    assert {task.name for task in BUILT_IN} - {"http"} == ADMIN_TASKS


def test_a_refusal_names_the_param_and_what_is_open() -> None:
    with pytest.raises(Refused, match="has these open params: day, hour; only an admin may set 'argv'") as caught:
        authority.check_from_template(caller(OPERATOR), template("command", "day", "hour"), ["day", "argv"])
    assert caught.value.field == "params.argv"
    with pytest.raises(Refused, match="open params: none"):
        authority.check_from_template(caller(OPERATOR), template("sql"), ["script"])


def test_roles_are_in_order() -> None:
    able = {role: [needed.value for needed in Role if role.may(needed)] for role in Role}
    assert able == {
        Role.VIEWER: ["viewer"],
        Role.OPERATOR: ["viewer", "operator"],
        Role.ADMIN: ["viewer", "operator", "admin"],
    }
    with pytest.raises(BadInput, match="viewer, operator, admin, not 'root'"):
        Role.parse("root")


@pytest.mark.parametrize(
    ("system", "tenant", "error"),
    [
        (True, None, None),
        (True, "other", None),
        (False, "default", None),
        (False, None, Refused),
        (False, "other", NotFound),
    ],
)
def test_a_tenants_admin_makes_tokens_for_that_tenant_alone(
    system: bool, tenant: str | None, error: type[Exception] | None
) -> None:
    if error is None:
        permissions.check_grant(visitor(ADMIN, system=system), tenant)
    else:
        with pytest.raises(error):
            permissions.check_grant(visitor(ADMIN, system=system), tenant)


@pytest.mark.parametrize(
    "text", ["", "hw_", "hw_short", "xx_" + "a" * 43, "hw_" + "a" * 44, "hw_" + "ä" * 43, "hw_" + "a" * 42]
)
def test_an_impossible_token_is_not_looked_up(text: str) -> None:
    assert not permissions.looks_like_token(text)
    assert not permissions.looks_like_session(text.replace("hw_", "hws_"))


def test_a_token_does_not_look_like_a_session_nor_a_session_like_a_token() -> None:
    for digits in (42, 43, 44):
        assert not permissions.looks_like_token("hws_" + "a" * digits)
        assert not permissions.looks_like_session("hw_" + "a" * digits)
    assert permissions.looks_like_session("hws_" + "a" * 43)


def test_each_cookie_has_a_csrf_token_of_its_own_that_does_not_tell_it() -> None:
    key = CookieKey(b"a" * 32)
    cookies = ["", "a", "b", "hws_" + "a" * 43, "ü"]
    made = {key.csrf_of(cookie) for cookie in cookies}
    assert len(made) == len(cookies)
    assert all(len(one) == 43 and one.isascii() for one in made)
    assert not made & {CookieKey(b"b" * 32).csrf_of(cookie) for cookie in cookies}
    for cookie in cookies:
        assert [other for other in cookies if key.is_csrf_of(key.csrf_of(cookie), other)] == [cookie]
        for wrong in ("", "ü", "\udcff", cookie, key.csrf_of(cookie) + "=", permissions.fingerprint(cookie)):
            assert not key.is_csrf_of(wrong, cookie)
