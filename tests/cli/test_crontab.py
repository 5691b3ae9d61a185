"""`headway schedules import`: a crontab as cron reads it, line by line, all of it or nothing."""

from __future__ import annotations

import os
from typing import Any

import pytest

from headway.app import App
from headway.model.schedules.crontab import read, suggested_name
from headway.testing import drain
from tests.support.cli import Here, program

pytestmark = pytest.mark.shown

CRONTAB = """\
# m h  dom mon dow   command
SHELL = /bin/sh
PATH="/usr/local/bin:/usr/bin:/bin"
MAILTO=root

# The nightly backup,
# kept for a week.
30 2 * * 1-5\t/usr/local/bin/backup.sh --full > /dev/null 2>&1
CRON_TZ=Europe/Berlin
@daily cd /srv/app && ./manage.py clearsessions
*/10 * * * * mail -s "at 100\\% now" ops%Dear all,%it is \\% full.
@reboot /usr/bin/start-something

0 5 * * 7 /usr/local/bin/backup.sh --full
"""


@pytest.fixture
def tab(cli: Here) -> Here:
    write(cli, CRONTAB)
    return cli


def write(cli: Here, text: str) -> None:
    (cli.folder / "tab").write_text(text)


def imported(cli: Here, *args: object) -> dict[str, Any]:
    found: dict[str, Any] = cli("schedules", "import", "tab", "--timezone", "UTC", "--json", *args).done().data
    return found


def step(schedule: dict[str, Any]) -> dict[str, Any]:
    (only,) = schedule["steps"]
    assert (only["task"], only["retry_policy"]) == ("command", {"max_attempts": 0})
    params: dict[str, Any] = only["params"]
    return params


def test_each_line_is_a_schedule(tab: Here) -> None:
    said = tab("schedules", "import", "tab", "--timezone", "America/New_York").done()
    assert said.out.splitlines() == [
        "+ backup: at 02:30, Monday to Friday, New York time (line 8)",
        "+ manage: at 00:00, every day, Berlin time (line 10)",
        "+ mail: every 10 minutes (line 11)",
        "+ backup-2: at 05:00, on Sunday, Berlin time (line 14)",
    ]
    assert said.err.splitlines() == [
        "left out: line 4: MAILTO is a setting of cron and has no effect here",
        "left out: line 12: @reboot is not a time: start this command at boot",
        "4 schedules created; times are in America/New_York",
    ]
    found = {one["name"]: one for one in tab("schedules", "ls", "--json").done().data["items"]}
    home, env = os.path.expanduser("~"), {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    backup = found["backup"]
    assert step(backup) == {
        "argv": "/usr/local/bin/backup.sh --full > /dev/null 2>&1",
        "shell": True,
        "env": env,
        "cwd": home,
    }
    assert (backup["note"], backup["origin"]) == ("The nightly backup,\nkept for a week.", "api")
    assert (backup["timezone"], backup["overlap"]) == ("America/New_York", "skip")
    assert step(found["mail"])["argv"] == 'mail -s "at 100% now" ops'
    assert step(found["mail"])["stdin"] == "Dear all,\nit is % full.\n"
    assert found["manage"]["note"] is None
    assert tab("verify", "--json").done().data["findings"] == []


def test_dry_run_and_twice(tab: Here) -> None:
    assert (
        "4 schedules would be created" in tab("schedules", "import", "tab", "--dry-run", "--timezone", "UTC").done().err
    )
    assert tab("schedules", "ls", "--json").data["items"] == []
    assert [one["made"] for one in imported(tab)["items"]] == [True] * 4
    said = tab("schedules", "import", "tab", "--timezone", "UTC").done()
    assert [line[0] for line in said.out.splitlines()] == ["="] * 4
    assert "0 schedules created, 4 already existed" in said.err
    # A line that was changed is another schedule: what became of the first one is for its owner to say.
    write(tab, CRONTAB.replace("30 2", "45 2"))
    said = tab("schedules", "import", "tab", "--timezone", "UTC").done()
    assert said.out.splitlines()[0] == "+ backup-3: at 02:45, Monday to Friday, UTC (line 8)"


def test_it_runs_as_cron_would(tab: Here, app: App) -> None:
    out = tab.folder / "out"
    write(tab, f"HOME={tab.folder}\nWORD=fog\n0 0 * * * (pwd; echo $WORD; cat) > {out}%one%two\n")
    (one,) = imported(tab, "--disabled")["items"]
    tab("schedules", "run", one["name"]).done()
    assert drain(app) == 1
    assert out.read_text() == f"{tab.folder}\nfog\none\ntwo\n"


def test_a_system_crontab_names_users(tab: Here) -> None:
    write(tab, "SHELL=/bin/bash\n17 *\t* * *\troot    cd / && run-parts --report /etc/cron.hourly\n")
    (one,) = imported(tab, "--user-column")["items"]
    assert one["name"] == "run-parts"
    assert step(one) == {"argv": ["/bin/bash", "-c", "cd / && run-parts --report /etc/cron.hourly"]}
    assert one["note"] == "cron ran it as root"


def test_from_a_pipe(here: Here) -> None:
    said = program("schedules", "import", "-", cwd=here.folder, stdin="@daily true\n", TZ="Europe/Berlin").done()
    assert said.out == "+ true: at 00:00, every day, Berlin time (line 1)\n"
    assert "times are in Europe/Berlin" in said.err


def test_every_wrong_line_at_once_and_nothing_stored(tab: Here) -> None:
    lines = ["* * * * true", "0 0 31 2 * true", "@often true", "0 0 * * *", "CRON_TZ=Berlin", "0 0 * * * fine"]
    write(tab, "\n".join(lines))
    said = tab("schedules", "import", "tab")
    assert (said.code, said.out) == (2, "")
    head, *told = said.err.splitlines()
    assert head == "headway: tab has 5 problems: correct them"
    assert [line.strip().split(":")[1] for line in told] == [f" line {n}" for n in range(1, 6)]
    assert "a command must follow the time" in said.err
    assert "did you mean Europe/Berlin?" in said.err
    assert tab("schedules", "ls", "--json").done().data["items"] == []
    assert tab("schedules", "import", "tab", "--json").error["code"] == "bad_crontab"


def test_one_wrong_line_is_one_line(tab: Here) -> None:
    write(tab, "0 0 * * mon-fry true\n")
    tab("schedules", "import", "tab").refused(2, "tab: line 1: cron")
    write(tab, "0 0 * * * root\n")
    tab("schedules", "import", "tab", "--user-column").refused(2, "line 1: a user and a command must follow")
    tab("schedules", "import", "nothing").refused(2, "nothing cannot be read")
    tab("schedules", "import", "tab", "--timezone", "Mars").refused(2, "timezone")
    (tab.folder / "tab").write_bytes(b"\xff\n")
    tab("schedules", "import", "tab").refused(2, "is not UTF-8 text")


def test_nothing_in_it(here: Here) -> None:
    (here.folder / "tab").write_text("# nothing but words\n")
    said = here("schedules", "import", "tab", "--timezone", "UTC").done()
    assert said.out == ""
    assert "0 schedules created" in said.err


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/local/bin/backup.sh --full", "backup"),
        ("cd /srv/app && ./manage.py clearsessions", "manage"),
        ("test -x /usr/sbin/anacron || run-parts /etc/cron.daily", "run-parts"),
        ("python3 -u /opt/sync.py --all", "sync"),
        ("FOO=bar nice -n 10 /bin/dump x", "dump"),
        ("flock -n /tmp/x.lock rsync -a a b", "rsync"),
        ("sudo -n /opt/a.b/report.v2.sh", "report.v2"),
        ("$HOME/bin/x", "command"),
        ("(pwd; date)", "pwd"),
    ],
)
def test_names(command: str, name: str) -> None:
    assert suggested_name(command) == name


def test_settings_hold_for_the_lines_below_them() -> None:
    text = "@daily one\nTZ=Asia/Tokyo\nA='x y'\n@daily two\nA=\n@daily three\r\n"
    first, second, third = (dict(one.definition) for one in read(text, zone="UTC").entries)
    env = [one["steps"][0]["params"].get("env") for one in (first, second, third)]
    assert env == [None, {"TZ": "Asia/Tokyo", "A": "x y"}, {"TZ": "Asia/Tokyo", "A": ""}]
    # As cron has it: TZ is for the command, CRON_TZ for its time.
    assert second["timezone"] == "UTC"
    assert third["steps"][0]["params"]["argv"] == "three"


def test_a_comment_belongs_to_the_line_right_below_it() -> None:
    text = "# about all\n\n# about one\n@daily one\n@daily two\n# ---- three ----\n#three\n@daily three\n"
    notes = [one.definition.get("note") for one in read(text, zone="UTC").entries]
    assert notes == ["about one", None, "three"]
