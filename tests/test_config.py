"""Settings: who overrides whom, every problem at once with its place, and nothing secret shown."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from headway import config
from headway.errors import BadInput
from headway.model.access.secrets import OwnedSecret

Write = Callable[[str], Path]

PAGE = (Path(__file__).parent.parent / "docs" / "settings.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `([a-z_.]+)` \| (.* \| `.*`) \|$", PAGE, re.MULTILINE))


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes `headway.toml` in the current folder, so that messages carry its bare name."""
    monkeypatch.chdir(tmp_path)

    def write(text: str) -> Path:
        Path("headway.toml").write_text(dedent(text), encoding="utf-8")
        return Path("headway.toml")

    return write


def problems(
    path: Path | None = None, environ: Mapping[str, str] | None = None, overrides: Mapping[str, object] | None = None
) -> list[str]:
    with pytest.raises(BadInput) as caught:
        config.load(path, environ or {}, overrides or {})
    assert caught.value.code == "bad_settings"
    assert str(caught.value).split("\n") == caught.value.facts["problems"]
    return str(caught.value).split("\n")


def sources(settings: config.Settings) -> dict[str, tuple[str, str]]:
    return {row.name: (row.value, row.source) for row in config.explain(settings)}


class TestSources:
    def test_defaults(self, write: Write) -> None:
        settings = config.load(None, {}, {})
        assert (settings.database, settings.host, settings.port, settings.slots) == (
            "headway.db",
            "127.0.0.1",
            8642,
            4,
        )
        assert (settings.concurrency.policy, settings.concurrency.limit) == ("global", 1)
        assert (settings.lease, settings.heartbeat, settings.recovery_interval) == (60.0, 2.0, 30.0)
        assert (settings.shutdown_grace, settings.reservation_ttl, settings.direct_wait) == (30.0, 600.0, 300.0)
        assert (settings.retry.max_attempts, settings.retry.base_delay) == (3, 10.0)
        assert (settings.aging, settings.retention) == (None, 30 * 86_400.0)

    def test_each_source_overrides_the_one_before(self, write: Write) -> None:
        path = write('slots = 2\nport = 2\nhost = "file"\n')
        settings = config.load(path, {"HEADWAY_SLOTS": "3", "HEADWAY_PORT": "3"}, {"slots": 5})
        assert (settings.slots, settings.port, settings.host) == (5, 3, "file")
        shown = sources(settings)
        assert shown["slots"] == ("5", "--slots")
        assert shown["port"] == ("3", "HEADWAY_PORT")
        assert shown["host"] == ("file", "headway.toml:3")
        assert shown["lease"] == ("1m", "default")

    def test_sections_and_maps_merge_by_entry(self, write: Write) -> None:
        path = write("""
            [concurrency]
            policy = "per_task"
            limits = { "story.generate" = 2 }
            [resources]
            ollama = 1
            remote = 2
        """)
        environ = {
            "HEADWAY_CONCURRENCY__LIMIT": "none",
            "HEADWAY_RESOURCES__GPU": "3",
            "HEADWAY_RESOURCES__remote": "4",
        }
        settings = config.load(path, environ, {"concurrency.limits.research.run": 5})
        assert settings.concurrency.limit is None
        assert settings.concurrency.policy == "per_task"
        assert settings.concurrency.limits == {"story.generate": 2, "research.run": 5}
        assert settings.resources == {"ollama": 1, "remote": 4, "GPU": 3}

    def test_a_table_in_one_variable_is_json(self, write: Write) -> None:
        environ = {"HEADWAY_RESOURCES": '{"ollama": 1}', "HEADWAY_RETRY": '{"base_delay": "5m"}'}
        settings = config.load(None, environ, {})
        assert settings.resources == {"ollama": 1}
        assert settings.retry.base_delay == 300.0

    def test_nested_overrides_and_flags_not_given(self, write: Write) -> None:
        settings = config.load(None, {}, {"webhooks": {"allow_private": True}, "slots": None})
        assert settings.webhooks.allow_private is True
        assert settings.slots == 4

    def test_the_default_file_is_read_if_it_is_there(self, write: Write) -> None:
        assert config.load(None, {}, {}).slots == 4
        write("slots = 7")
        assert config.load(None, {}, {}).slots == 7

    def test_a_named_file_must_exist(self, write: Write) -> None:
        found = problems(Path("other.toml"), {"HEADWAY_SLOTS": "0"})
        assert found == ["other.toml: cannot be read: No such file or directory", "HEADWAY_SLOTS: must be at least 1"]

    def test_other_variables_are_not_ours(self, write: Write) -> None:
        environ = {
            "HEADWAY_TEST_POSTGRES": "x",
            "HEADWAY_WORK": "0123456789abcdef",
            "HEADWAY_PROOF": "1",
            "HEADWAY_PROOF_SEEDS": "1",
            "PATH": "",
            "SLOTS": "0",
        }
        assert config.load(None, environ, {}).slots == 4

    def test_values_as_people_write_them(self, write: Write) -> None:
        path = write("""
            lease = 90
            retention = "none"
            aging = "1h30m"
            shutdown_grace = "0s"
            artifacts = "/srv/files"
            app = "shop.jobs:app"
            database = "postgresql://me@db/headway"
            listen = "postgresql://me@direct/headway"
            [concurrency]
            limit = "None"
            targets = "global"
            [secrets]
            KEY = "env:OPENAI_KEY"
            [connections]
            shop = "postgresql://me:pw@shop/db"
        """)
        settings = config.load(path, {"HEADWAY_WEBHOOKS__ALLOW_PRIVATE": "yes"}, {})
        assert (settings.lease, settings.retention, settings.aging, settings.shutdown_grace) == (90.0, None, 5400.0, 0)
        assert settings.artifacts == Path("/srv/files")
        assert settings.concurrency.limit is None
        assert settings.webhooks.allow_private is True
        assert settings.secrets == {"KEY": OwnedSecret("env:OPENAI_KEY", ("default",), ("*",))}

    def test_a_secret_names_its_owners(self, write: Write) -> None:
        path = write("""
            [secrets]
            A = { from = "env:A", tenants = ["shop", "büro"], tasks = ["http", "story.*"] }
            B = { from = "file:/b", tenants = "*" }
        """)
        given = {"HEADWAY_SECRETS": '{"C": {"from": "env:C", "tasks": ["http"]}, "D": "env:D"}'}
        settings = config.load(path, given, {})
        assert settings.secrets == {
            "A": OwnedSecret("env:A", ("shop", "büro"), ("http", "story.*")),
            "B": OwnedSecret("file:/b", ("*",), ("*",)),
            "C": OwnedSecret("env:C", ("default",), ("http",)),
            "D": OwnedSecret("env:D", ("default",), ("*",)),
        }
        shown = {item.name: item.value for item in config.explain(settings)}
        assert shown["secrets.B"] == '{ from = "file:/b", tenants = ["*"], tasks = ["*"] }'
        assert shown["secrets.D"] == "env:D"

    @pytest.mark.parametrize(
        "value",
        ['{ tenants = ["shop"] }', '{ from = "hunter2" }', '{ from = "env:A", tenant = ["shop"] }', "5", '["env:A"]']
        + [f'{{ from = "env:A", {field} }}' for field in ('tenants = "shop"', "tenants = []", "tasks = [5]")],
    )
    def test_owners_that_cannot_be_read(self, write: Write, value: str) -> None:
        (problem,) = problems(write(f"[secrets]\nA = {value}\n"))
        assert problem.startswith("headway.toml:2: secrets.A: must ")
        assert "hunter2" not in problem

    def test_none_unsets_what_the_file_sets(self, write: Write) -> None:
        path = write('app = "a:b"\naging = "5m"\n')
        settings = config.load(path, {"HEADWAY_APP": "none"}, {"aging": "none"})
        assert (settings.app, settings.aging) == (None, None)


class TestProblems:
    def test_every_problem_at_once_in_order_with_its_place(self, write: Write) -> None:
        path = write('''\
            # the shop's machine
            slots = 0
            artifacts = """
            slots = 9
            """
            sltos = 4
            limit = 2

            [concurrency]
            limit = "lots"
            policy = "globl"
            limits = { "story.generate" = 0, "any name" = 1 }
            tagrets = "own"

            [resources]
            gpu = [
              1,
            ]
            ollama = -1

            [port]
            x = 1
        ''')
        environ = {
            "HEADWAY_SLOT": "hunter2",
            "HEADWAY_PORT": "http",
            "HEADWAY_HOST": "",
            "HEADWAY_CONCURRENCY": '{"targets": "mine"}',
            "HEADWAY_CONCURENCY__LIMIT": "1",
            "HEADWAY_RESOURCES": "{",
            "HEADWAY_LEGACY": "[]",
        }
        overrides = {"shutdown_grace": "-1s", "reservation_tl": 5, "retry": 3, "retention": "soon", "slots": True}
        assert problems(path, environ, overrides) == [
            "headway.toml:2: slots: must be at least 1",
            "headway.toml:6: sltos: unknown setting, did you mean slots?",
            "headway.toml:7: limit: unknown setting, did you mean concurrency.limit?",
            'headway.toml:10: concurrency.limit: must be a whole number (or "none")',
            "headway.toml:11: concurrency.policy: must be global, per_task, per_resource, or your own class like "
            "shop.policies.Mine: did you mean global?",
            'headway.toml:12: concurrency.limits["story.generate"]: must be at least 1',
            "headway.toml:13: concurrency.tagrets: unknown setting, did you mean concurrency.targets?",
            "headway.toml:16: resources.gpu: must be a whole number",
            "headway.toml:19: resources.ollama: must be at least 1",
            "headway.toml:21: port: must be a whole number",
            "HEADWAY_CONCURENCY__LIMIT: unknown setting, did you mean HEADWAY_CONCURRENCY__LIMIT?",
            "HEADWAY_CONCURRENCY: concurrency.targets: must be 'own' or 'global'",
            "HEADWAY_HOST: is empty: unset it or give it a value",
            "HEADWAY_LEGACY: must be a table of names and values",
            "HEADWAY_PORT: must be a whole number",
            "HEADWAY_RESOURCES: must be a JSON object: it is not JSON: "
            "Expecting property name enclosed in double quotes (line 1, column 2)",
            "HEADWAY_SLOT: unknown setting, did you mean HEADWAY_SLOTS?",
            "--reservation-tl: unknown setting, did you mean --reservation-ttl?",
            '--retention: is not a duration: write it like 10s, 5m or 1h30m (or "none")',
            "--retry: must be a table of names and values",
            "--shutdown-grace: must not be negative: write it like 10s, 5m or 1h30m",
            "--slots: must be a whole number",
        ]

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("SLOTS", "0"),
            ("SLOTS", "1.5"),
            ("SLOTS", "true"),
            ("SLOTS", "1000001"),
            ("SLOTS", "9" * 30),
            ("PORT", "65536"),
            ("PORT", "-1"),
            ("HOST", "a\tb"),
            ("HEARTBEAT", "0"),
            ("HEARTBEAT", "forever"),
            ("RECOVERY_INTERVAL", "0s"),
            ("RESERVATION_TTL", "0"),
            ("DIRECT_WAIT", "-1"),
            ("AGING", "0"),
            ("AGING", "0.0001ms"),
            ("RETENTION", "0d"),
            ("RETENTION", "200000d"),
            ("RETRY__MAX_ATTEMPTS", "-1"),
            ("RETRY__BASE_DELAY", "ten"),
            ("CONCURRENCY__LIMIT", "0"),
            ("CONCURRENCY__LIMITS__a\tb", "1"),
            ("CONCURRENCY__POLICY", "per_tsk"),
            ("CONCURRENCY__POLICY", "Mine"),
            ("CONCURRENCY__POLICY", "shop.policies.My-Own"),
            ("CONCURRENCY__TARGETS", "none"),
            ("RESOURCES__GPU", "none"),
            ("RESOURCES__", "1"),
            ("WEBHOOKS__ALLOW_PRIVATE", "maybe"),
            ("CONNECTIONS__SHOP", "shop"),
            ("SECRETS__KEY", "hunter2"),
            ("SECRETS__KEY", "env:"),
            ("LEGACY__STORY", "no such/name"),
            ("APP", "shop.jobs"),
            ("APP", "shop.jobs:app()"),
            ("DATABASE", "mysql://db/headway"),
            ("DATABASE", "postgresql+psycopg://db/headway"),
            ("DATABASE", "host=db dbname=headway"),
            ("LISTEN", "headway.db"),
            ("ARTIFACTS", "a\x00b"),
        ],
    )
    def test_bad_values_name_their_variable(self, name: str, value: str, write: Write) -> None:
        (problem,) = problems(None, {f"HEADWAY_{name}": value})
        assert problem.startswith(f"HEADWAY_{name}: ")
        assert "hunter2" not in problem

    def test_lease_of_less_than_three_heartbeats(self, write: Write) -> None:
        rule = "must be at least 3 heartbeats"
        assert problems(write('lease = "5s"')) == [f"headway.toml:1: lease: {rule}: 5s is less than 3 × 2s"]
        write("")
        assert problems(None, {"HEADWAY_HEARTBEAT": "30s"}) == [
            f"HEADWAY_HEARTBEAT: lease: {rule}: 1m is less than 3 × 30s"
        ]
        assert problems(None, {}, {"heartbeat": "1m", "lease": "2m"}) == [f"--lease: {rule}: 2m is less than 3 × 1m"]

    @pytest.mark.parametrize(("heartbeat", "lease"), [("2s", "6s"), ("0.1", "0.3"), ("100ms", "300ms")])
    def test_lease_of_exactly_three_heartbeats(self, heartbeat: str, lease: str, write: Write) -> None:
        assert config.load(None, {"HEADWAY_HEARTBEAT": heartbeat, "HEADWAY_LEASE": lease}, {}).lease > 0

    def test_sources_are_judged_together_not_one_by_one(self, write: Write) -> None:
        path = write('heartbeat = "30s"\nlisten = "postgresql://direct/x"\n')
        settings = config.load(path, {"HEADWAY_LEASE": "2m"}, {"database": "postgresql://pooler/x"})
        assert (settings.heartbeat, settings.lease) == (30.0, 120.0)

    def test_listen_without_postgres(self, write: Write) -> None:
        path = write('slots = 1\nlisten = "postgresql://direct/x"\n')
        assert problems(path) == ["headway.toml:2: listen: is for PostgreSQL only, and database is a file: remove it"]

    def test_an_overridden_value_must_be_valid_too(self, write: Write) -> None:
        assert problems(write("slots = 0"), {}, {"slots": 3}) == ["headway.toml:1: slots: must be at least 1"]

    @pytest.mark.parametrize(
        ("text", "start"),
        [
            ("slots = 1\nslots = \n", "headway.toml:2: is not TOML: "),
            ("slots = 1\nslots = 2\n", "headway.toml:2: is not TOML: "),
            ('slots = 1\nhost = """x', "headway.toml:2: is not TOML: "),
            ("[[[", "headway.toml:1: is not TOML: "),
        ],
    )
    def test_broken_toml_hides_no_other_source(self, text: str, start: str, write: Write) -> None:
        broken, other = problems(write(text), {"HEADWAY_SLOTS": "0"})
        assert broken.startswith(start)
        assert other == "HEADWAY_SLOTS: must be at least 1"

    def test_a_file_that_is_not_text(self, write: Write, tmp_path: Path) -> None:
        Path("headway.toml").write_bytes(b"host = '\xff'")
        assert problems(None) == ["headway.toml: is not UTF-8 text (byte 8)"]
        assert problems(tmp_path) == [f"{tmp_path}: cannot be read: Is a directory"]

    @pytest.mark.parametrize(
        ("text", "line"),
        [
            ("\r\n\r\nslots = 0\r\n", 3),
            ("\ufeffslots = 0", 1),
            ('"slots" = 0', 1),
            ("host = '''\n[x]\n'''\nslots = 0", 4),
            ("concurrency.limits.a = 1\nslots = 0 # = 1", 2),
        ],
    )
    def test_lines_are_counted_as_an_editor_does(self, text: str, line: int, write: Write) -> None:
        Path("headway.toml").write_bytes(text.encode())
        assert f"headway.toml:{line}: slots: must be at least 1" in problems(None)

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("\n[concurrency.limits]\n\na = 0", "4: concurrency.limits.a: must be at least 1"),
            ("concurrency = { limits = { a = 0 } }", "1: concurrency.limits.a: must be at least 1"),
            ("slots = 1\n[[legacy]]\nstory = 'x'", "2: legacy: must be a table of names and values"),
            ("slots = 1\n[legacy.story]\nx = 1", "2: legacy.story: must be text"),
            ("[a.b.c]\nx = 1", "1: a: unknown setting"),
            ("\n[webhook]\nallow_private = true", "2: webhook: unknown setting, did you mean webhooks?"),
            ("[resources]\n'[key]' = 0", '2: resources["[key]"]: must be at least 1'),
            ("slots = 1979-05-27", "1: slots: must be a whole number"),
            ("lease = 1979-05-27", "1: lease: must be a duration, not date: write it like 10s, 5m or 1h30m"),
        ],
    )
    def test_tables_in_all_their_spellings(self, text: str, problem: str, write: Write) -> None:
        assert problems(write(text)) == [f"headway.toml:{problem}"]

    @given(st.dictionaries(st.sampled_from(["SLOTS", "LEASE", "LISTEN", "RESOURCES", "SECRETS__a", "X"]), st.text()))
    def test_any_environment_is_accepted_or_refused(self, variables: dict[str, str]) -> None:
        environ = {f"HEADWAY_{name}": text for name, text in variables.items()}
        found: list[str] = []
        try:
            config.load(Path("/dev/null"), environ, {})
        except BadInput as error:
            found = error.facts["problems"]
        assert {problem.partition(":")[0] for problem in found} <= environ.keys()


class TestShowing:
    def test_every_setting_is_described(self) -> None:
        rows = config.explain(config.Settings())
        assert all(row.description and "\n" not in row.description for row in rows)
        assert {row.name.partition(".")[0] for row in rows} == set(config.Settings.model_fields)

    def test_shown_values_can_be_written_back(self, write: Write) -> None:
        path = write('retention = "36h"\nresources = { "big gpu" = 1 }\nconcurrency.limit = "none"\n')
        settings = config.load(path, {}, {})
        shown = {row.name: row.value for row in config.explain(settings)}
        assert shown.pop('resources["big gpu"]') == "1"
        shown["resources"] = '{"big gpu": 1}'
        environ = {"HEADWAY_" + name.upper().replace(".", "__"): value for name, value in shown.items()}
        assert config.load(Path("/dev/null"), environ, {}).model_dump() == settings.model_dump()

    @pytest.mark.parametrize(
        ("address", "shown"),
        [
            ("headway.db", "headway.db"),
            ("postgresql://me@db:5432/x", "postgresql://me@db:5432/x"),
            ("postgresql://me:hunter2@db:5432/x", "postgresql://me:***@db:5432/x"),
            ("postgresql://:hunter2@db/x", "postgresql://:***@db/x"),
            ("postgresql://me:hun@ter2/hunter2@db/x", "postgresql://me:***@db/x"),
            ("postgresql://me:hunter2?hunter2#@db/x", "postgresql://me:***@db/x"),
            ("postgresql://db/x?user=me&password=hunter2", "postgresql://db/x?user=me&password=***"),
            ("postgresql://db/x?sslpassword=hunter2&a=b", "postgresql://db/x?sslpassword=***"),
            ("http://db/x?api_token=hunter2", "http://db/x?api_token=***"),
            ("host=db PASSWORD = 'hunter2 \\' hunter2' user=me", "host=db PASSWORD = *** user=me"),
        ],
    )
    def test_passwords_are_masked(self, address: str, shown: str) -> None:
        assert config.masked(address) == shown

    @pytest.mark.parametrize(
        ("address", "holds"),
        [
            ("postgresql://ann:pw@db/shop", True),
            ("postgresql://:pw@db/shop", True),
            ("postgresql://ann@db/shop?password=pw", True),
            ("postgresql://db/shop?user=ann&sslpassword=pw", True),
            ("host=db password=pw", True),
            ("postgresql://ann@db:5432/shop?passfile=/etc/pg&sslkey=/etc/key", False),
            ("postgresql://db:5432/shop", False),
            ("password/headway.db", False),
        ],
    )
    def test_a_password_in_an_address_is_found(self, address: str, holds: bool) -> None:
        assert config.holds_password(address) is holds

    def test_nothing_secret_is_shown(self, write: Write) -> None:
        address = "postgresql://me:hunter2@db/x"
        given = {"database": address, "listen": address, "connections": {"shop": address}, "secrets": {"k": "env:K"}}
        settings = config.load(None, {}, given)
        assert (settings.database, settings.connections["shop"]) == (address, address)
        assert "hunter2" not in f"{config.explain(settings)}{settings!r}{settings}"
        assert sources(settings)["connections.shop"] == ("postgresql://me:***@db/x", "--connections-shop")

    @pytest.mark.parametrize(
        ("address", "good"),
        [
            ("postgres://db/x", True),
            ("./shop.db", True),
            ("shop.sqlite3", True),
            ("/srv/shop", True),
            ("mysql://db/x", False),
            ("sqlite:///shop.db", "./shop.db"),
            ("sqlite:///./shop", "./shop"),
            ("sqlite:////srv/shop.db", "/srv/shop.db"),
            ("sqlite:///:memory:", False),
            ("sqlite:///", False),
            ("sqlite:///shop.db?mode=ro", False),
            ("sqlite://shop.db", False),
            ("shop", False),
            ("", False),
        ],
    )
    def test_a_connection_is_a_postgres_address_or_a_file(self, address: str, good: bool | str) -> None:
        given = {"connections": {"shop": address}}
        if good:
            means = address if good is True else good
            assert config.load(None, {}, given).connections == {"shop": means}
            assert config.load(None, {}, {"database": means}) == config.load(None, {}, {"database": address})
        else:
            with pytest.raises(BadInput, match=r"such as .*\./shop\.db"):
                config.load(None, {}, given)

    @pytest.mark.parametrize("setting", ["database", "listen"])
    def test_an_address_that_cannot_be_read(self, setting: str, write: Write) -> None:
        path = write(f'slots = 1\n{setting} = "postgresql://me:hun ter2@db/x"\n')
        database = {"database": "postgresql://db/x"} if setting == "listen" else {}
        (problem,) = problems(path, {}, database)
        assert problem.startswith(f"headway.toml:2: {setting}: is not a valid PostgreSQL address: write it like")
        assert "ter2" not in problem
        assert config.masked(problem) == problem, "what is masked elsewhere stays whole"

    def test_problems_never_quote_values(self, write: Write) -> None:
        path = write('database = "mysql://me:hunter2@db"\n[connections]\nshop = "hunter2"\n[secrets]\nk = "hunter2"\n')
        environ = {
            "HEADWAY_LISTEN": "hunter2",
            "HEADWAY_SECRETS": '{"a": "hunter2"}',
            "HEADWAY_CONNECTIONS": '"hunter2"',
        }
        found = problems(path, environ, {"listen": "hunter2"})
        assert len(found) == 7
        assert "hunter2" not in "\n".join(found)

    def test_made_by_hand_they_keep_secrets_too(self) -> None:
        with pytest.raises(ValidationError) as caught:
            config.Settings.model_validate({"secrets": {"k": "hunter2"}, "connections": {"shop": "hunter2"}})
        assert "hunter2" not in str(caught.value)

    def test_settings_do_not_change(self) -> None:
        settings = config.Settings()
        with pytest.raises(ValidationError):
            settings.slots = 5
        with pytest.raises(ValidationError):
            settings.concurrency.limit = 5


class TestPage:
    """docs/settings.md tells the truth."""

    def test_it_has_one_row_for_every_setting(self) -> None:
        assert list(ROWS) != []
        assert set(ROWS) == {row.name for row in config.explain(config.Settings())}

    @pytest.mark.parametrize("row", config.explain(config.Settings()), ids=lambda row: row.name)
    def test_defaults_and_examples_are_real(self, row: config.Explained, write: Write) -> None:
        default, _, example = ROWS[row.name].split(" | ")
        overrides = {"database": "postgresql://pooler/x"} if row.name == "listen" else {}
        changed = config.load(write(f"{row.name} = {example.strip('`')}"), {}, overrides)
        shown = {name: value for name, (value, _) in sources(changed).items()}
        assert shown.get(row.name) != row.value, "an example shows something else than the default"
        text = "{}" if default == "empty" else default.strip('`"')
        environ = {"HEADWAY_" + row.name.upper().replace(".", "__"): text}
        assert sources(config.load(Path("/dev/null"), environ, {}))[row.name][0] == row.value

    def test_the_whole_file_can_be_used(self, write: Write) -> None:
        (example,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
        assert config.load(write(example), {}, {}).app == tomllib.loads(example)["app"]
