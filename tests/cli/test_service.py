"""`service print`: what it prints is read back by others' readers, and really started, watched and stopped."""

from __future__ import annotations

import configparser
import json
import os
import plistlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.cli.service.command import program as installed
from headway.cli.service.units import UnitConfig, launchd, systemd
from headway.errors import BadInput
from tests.support.cli import PATIENCE, Here, environment, program, until
from tests.support.deadlines import read_all

pytestmark = pytest.mark.shown

WEIRD = "a b%c \"d\" 'e' $f é"
PASSWORD = "hunter2-very-secret"


def unit(text: str) -> dict[str, dict[str, str]]:
    """The unit by a reader that knows nothing of us; a key that is there twice is a mistake."""
    parser = configparser.RawConfigParser(strict=True, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    parser.read_string(text)
    return {name: dict(parser[name]) for name in parser.sections()}


def argv_of(line: str) -> list[str]:
    """As systemd takes a command: quoted words, `%%` for `%`; with `:` in front `$` is left alone."""
    assert line.startswith(":") or "$" not in line
    return [word.replace("%%", "%") for word in shlex.split(line.removeprefix(":"))]


def verified(text: str, folder: Path, name: str = "headway.service") -> None:
    """By systemd itself, where it is: it also sees whether the program is there."""
    if shutil.which("systemd-analyze") is None:
        return
    file = folder / name
    file.write_text(text)
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(file)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    about_us = [line for line in (checked.stdout + checked.stderr).splitlines() if name in line or "headway" in line]
    assert (checked.returncode, about_us) == (0, []), checked


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


# --- what is printed ----------------------------------------------------------------------------------------------


def test_a_unit_for_systemd(here: Here, folder: Path) -> None:
    (folder / "headway.toml").write_text('shutdown_grace = "10m"\n')
    said = here("service", "print", "systemd", "--user", "ann").done()
    found = unit(said.out)
    service = found["Service"]
    assert argv_of(service["ExecStart"]) == [*installed(), "up"]
    assert Path(installed()[0]).is_absolute()
    assert (service["WorkingDirectory"], service["User"]) == (str(folder), "ann")
    assert service["EnvironmentFile"] == f"-{folder}/headway.env"
    assert (service["KillMode"], service["KillSignal"], service["Restart"]) == ("mixed", "SIGTERM", "always")
    assert int(service["TimeoutStopSec"]) > 600
    assert found["Unit"]["After"] == "network-online.target"
    assert found["Install"] == {"WantedBy": "multi-user.target"}
    assert "sudo systemctl enable --now headway.service" in said.err
    assert os.listdir(folder) == ["headway.toml"]  # printing opens nothing
    verified(said.out, folder)


def test_a_worker_alone_on_postgresql(here: Here, folder: Path) -> None:
    url = "postgresql://ann@127.0.0.1/shop"
    args = ("--roles", "worker", "--slots", "2", "--name", "headway-gpu", "--database", url)
    said = here("service", "print", "systemd", *args).done()
    found = unit(said.out)
    assert argv_of(found["Service"]["ExecStart"]) == [*installed(), "work", "--database", url, "--slots", "2"]
    assert found["Unit"]["After"] == "network-online.target postgresql.service"
    assert "headway-gpu.service" in said.err


def test_a_property_list_for_launchd(here: Here, folder: Path) -> None:
    said = here("service", "print", "launchd", "--roles", "api,scheduler", "--user", "ann").done()
    found = plistlib.loads(said.out.encode())
    assert found["ProgramArguments"][-3:] == ["up", "--roles", "api,scheduler"]
    assert (found["Label"], found["UserName"], found["KeepAlive"]) == ("headway", "ann", True)
    assert (found["WorkingDirectory"], found["ExitTimeOut"]) == (str(folder), 90)
    assert "/Library/LaunchDaemons/headway.plist" in said.err
    assert "UserName" not in plistlib.loads(here("service", "print", "launchd").done().out.encode())


def test_the_usual_kind_and_json(here: Here) -> None:
    found = here("service", "print", "--json").done().data
    assert found.keys() == {"kind", "name", "text", "install", "notes"}
    assert found["kind"] == ("launchd" if sys.platform == "darwin" else "systemd")
    assert found["text"] == here("service", "print").done().out
    assert found["install"]


def test_no_secret_is_printed(here: Here, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", PASSWORD)
    monkeypatch.setenv("HEADWAY_LISTEN", f"postgresql://ann:{PASSWORD}@127.0.0.1/shop")
    (folder / "headway.toml").write_text('[secrets]\nkey = "env:API_KEY"\n')
    url = f"postgresql://ann:{PASSWORD}@127.0.0.1/shop"
    for kind in ("systemd", "launchd"):
        for more in ([], ["--json"]):
            said = here("service", "print", kind, "--database", url, *more).done()
            assert PASSWORD not in said.out + said.err
            told = said.out if more else said.err
            assert "API_KEY, HEADWAY_DATABASE, HEADWAY_LISTEN" in told
            assert f"{folder}/headway.env" in said.out


def test_settings_of_the_shell_and_of_files(here: Here, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "shop_for_service.py").write_text("print('noise')\nfrom headway import App\napp = App()\n")
    (folder / "other.toml").write_text('slots = 3\nshutdown_grace = "1h"\n')
    monkeypatch.setenv("HEADWAY_APP", "shop_for_service:app")
    said = here("service", "print", "systemd", "--config", "other.toml", "--database", "x/y.db").done()
    assert argv_of(unit(said.out)["Service"]["ExecStart"])[len(installed()) :] == [
        *("up", "--app", "shop_for_service:app", "--config", str(folder / "other.toml")),
        *("--database", str(folder / "x/y.db")),
    ]
    assert unit(said.out)["Service"]["TimeoutStopSec"] == "3660"
    assert "noise" in said.err
    monkeypatch.delenv("HEADWAY_APP")
    (folder / "headway.toml").write_text('app = "shop_for_service:app"\n')
    said = here("service", "print", "systemd").done()
    assert argv_of(unit(said.out)["Service"]["ExecStart"]) == [*installed(), "up"]  # the folder says it


def test_refused_values(here: Here, folder: Path) -> None:
    here("service", "print", "upstart").refused(2, "systemd")
    here("service", "print", "--roles", "cook").refused(2, "there is no role 'cook'")
    here("service", "print", "--user", "a b").refused(2, "--user")
    here("service", "print", "--name", "../x").refused(2, "--name")
    here("service", "print", "--slots", "0").refused(2, "slots")
    here("service", "print", "--app", "no_such_thing:app").refused(2, "there is no module")
    here("service", "print", "--env-file", "a\nb").refused(2, "control characters")
    here("service", "print", "--server", "http://127.0.0.1:1").refused(2, "needs the database itself")


def test_a_config_file_elsewhere(here: Here, folder: Path) -> None:
    """Without detours in its path."""
    (folder / "etc").mkdir()
    (folder / "etc" / "p.toml").touch()
    args = ("--config", "etc/../etc/p.toml", "--database", "etc/../x.db")
    said = here("service", "print", "systemd", *args).done()
    assert argv_of(unit(said.out)["Service"]["ExecStart"])[len(installed()) :] == [
        *("up", "--config", str(folder.resolve() / "etc/p.toml"), "--database", str(folder.resolve() / "x.db"))
    ]


def test_a_user_without_a_name(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container: systemd takes the number."""
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_123)
    said = here("service", "print", "systemd").done()
    assert unit(said.out)["Service"]["User"] == "4000123"


# --- spelling -----------------------------------------------------------------------------------------------------


def wanted(folder: Path, *argv: str, **more: Any) -> UnitConfig:
    return UnitConfig("headway", argv, str(folder), str(folder / "headway.env"), 30.0, **more)


@pytest.mark.parametrize("name", [WEIRD, "plain", "a\\b", "%n", "[x]*?", "-x", "ü"])
def test_names_that_need_care(tmp_path: Path, name: str) -> None:
    """systemd itself looks whether the program is there: a path that is spelled wrongly is not."""
    folder = tmp_path / name
    folder.mkdir()
    script = folder / "headway"
    script.write_text('#!/bin/sh\nprintf \'%s\\n\' "$0" "$@"\n')
    script.chmod(0o755)
    asked = wanted(folder, str(script), "up", "--app", name)
    text = systemd(asked)
    service = unit(text)["Service"]
    command = [str(script), "up", "--app", name]
    ran = subprocess.run(argv_of(service["ExecStart"]), capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert ran.stdout.splitlines() == command
    assert service["WorkingDirectory"].replace("%%", "%") == str(folder)
    assert re.sub(r"\\([*?\[\]\\])", r"\1", service["EnvironmentFile"]).replace("%%", "%") == f"-{folder}/headway.env"
    verified(text, tmp_path)
    found = plistlib.loads(launchd(asked, log=str(folder / "x.log")).encode())
    ran = subprocess.run(found["ProgramArguments"], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert ran.stdout.splitlines() == command
    assert found["WorkingDirectory"] == str(folder)


def test_variables_for_launchd_are_taken_as_they_are(tmp_path: Path) -> None:
    """They are no text of the shell's: what it would take for its own is a value like any other."""
    values = {
        "PLAIN": "a",
        "DOLLAR": "$HOME ${PATH} $(touch bad) `touch bad`",
        "AND": "a & b; c | d > bad",
        "BLANKS": "  two  blanks ",
        "QUOTES": """it's "so" \\n \\\\""",
        "EQUALS": "a=b c=d # e",
        "EMPTY": "",
        "STAR": "*",
        "_last": "no line end é",
    }
    lines = [f"{name}={value}" for name, value in values.items()]
    lines[1:1] = ["", "# COMMENT=1", "#COMMENT=1", "no variable", "a-b=1", "=x", "1A=x", "A B=x"]
    (tmp_path / "headway.env").write_text("\n".join(lines))
    tell = "import json, os; print(json.dumps(dict(os.environ)))"
    text = launchd(wanted(tmp_path, sys.executable, "-c", tell), log="/x")
    arguments = plistlib.loads(text.encode())["ProgramArguments"]
    ran = subprocess.run(
        arguments, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=True, env={"PATH": os.defpath}
    )
    found = json.loads(ran.stdout)
    assert {name: found.get(name) for name in values} == values
    assert found.keys() - values.keys() <= {"PATH", "PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"}
    assert (os.listdir(tmp_path), ran.stderr) == (["headway.env"], "")


def test_systemd_would_notice_a_wrong_path(tmp_path: Path) -> None:
    """That is what the test before relies on."""
    if shutil.which("systemd-analyze") is None:
        assert shutil.which("systemctl") is None
        return
    with pytest.raises(AssertionError, match="not executable"):
        verified(systemd(wanted(tmp_path, str(tmp_path / "missing"), "up")), tmp_path)


@pytest.mark.parametrize("folder", ["/srv/a\nb", "/srv/a ", "/srv/a\\", "/srv/a\x00"])
def test_names_that_no_file_can_say(folder: str) -> None:
    with pytest.raises(BadInput, match="rename it"):
        UnitConfig("headway", ["/bin/true"], folder, "/srv/env", 30.0)


@pytest.mark.parametrize("grace", [0.0, 0.5, 30.0, 86_400.0])
def test_the_manager_waits_for_longer_than_the_grace(tmp_path: Path, grace: float) -> None:
    asked = UnitConfig("headway", ["/bin/true"], str(tmp_path), str(tmp_path / "env"), grace)
    assert int(unit(systemd(asked))["Service"]["TimeoutStopSec"]) >= grace + 30
    assert plistlib.loads(launchd(asked, log="/x").encode())["ExitTimeOut"] >= grace + 30


# --- as a service -------------------------------------------------------------------------------------------------


def serves(argv: list[str], folder: Path, port: int, env: dict[str, str]) -> None:
    """Starts a program as a service manager does: it serves, and ends with 0 on a SIGTERM to it alone."""
    process = subprocess.Popen(
        argv,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:

        def alive() -> bool:
            assert process.poll() is None, read_all(process.stderr) if process.stderr else ""
            try:
                answer = httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=PATIENCE, trust_env=False)
            except httpx.TransportError:
                return False
            return answer.status_code == 200 and answer.json() == {"status": "alive"}

        until(alive, "the service")
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, said
        assert "headway: stopped" in said
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate(timeout=60)


@pytest.mark.parametrize("kind", ["systemd", "launchd"])
def test_it_really_runs(tmp_path: Path, kind: str) -> None:
    """In a folder whose name needs care; the port comes from the file of variables."""
    folder, port = tmp_path / WEIRD, free_port()
    folder.mkdir()
    (folder / "headway.toml").write_text('shutdown_grace = "5s"\n')
    printed = program("service", "print", kind, "--json", cwd=folder).done().data
    (folder / "headway.env").write_text(f"HEADWAY_PORT={port}\nHEADWAY_SLOTS=2\n")
    bare = {name: value for name, value in environment().items() if name != "HEADWAY_PORT"}
    if kind == "systemd":
        service = unit(printed["text"])["Service"]
        where = Path(service["WorkingDirectory"].replace("%%", "%"))
        file = Path(service["EnvironmentFile"].removeprefix("-").replace("%%", "%"))
        variables = dict(line.split("=", 1) for line in file.read_text().splitlines())
        serves(argv_of(service["ExecStart"]), where, port, bare | variables)
    else:
        found = plistlib.loads(printed["text"].encode())
        serves(found["ProgramArguments"], Path(found["WorkingDirectory"]), port, bare)
    assert (folder / "headway.db").is_file()
