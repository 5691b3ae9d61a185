"""Packages of the system that tests need, installed as root on Debian and Ubuntu, by one process at a time."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
from pathlib import Path

INSTALL_SECONDS = 600.0


def install(*packages: str) -> None:
    """Another process of the tests may want packages too: apt refuses the second one instead of waiting."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with Path(tempfile.gettempdir(), "headway-tests-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        options = ["-y", "-qq", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"]
        install = ["apt-get", "install", *options, *packages]
        # A killed installation leaves packages unpacked. Until they are configured, apt refuses every other one.
        for command in (["dpkg", "--configure", "-a"], ["apt-get", "update", "-qq"], install):
            subprocess.run(command, check=True, timeout=INSTALL_SECONDS, env=environment, stdout=subprocess.DEVNULL)
