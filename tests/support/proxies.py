"""Reverse proxies in front of a server: Debian's nginx and Caddy, installed where they are missing."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.support.packages import install
from tests.support.waiting import until

NAME = "headway.example.com"
SECONDS = 55.0
# Debian keeps nginx where a user's PATH does not always lead.
_PLACES = os.pathsep.join(("/usr/sbin", "/usr/bin"))


def program(name: str) -> str:
    """Where a program is: on the PATH, or installed now, without starting it."""
    found = shutil.which(name) or shutil.which(name, path=_PLACES)
    if found is None:
        if shutil.which("apt-get") is None or os.geteuid() != 0:
            raise RuntimeError(f"no {name}: install it (apt install {name})")
        install(name)
        found = shutil.which(name, path=_PLACES)
    assert found is not None, f"{name} was installed and cannot be found"
    return found


@dataclass(frozen=True)
class Certificate:
    """A certificate for NAME that it has signed itself."""

    path: Path
    key: Path

    @property
    def trusting(self) -> ssl.SSLContext:
        """A client's settings that accept this certificate and no other."""
        return ssl.create_default_context(cafile=str(self.path))


def make_certificate(folder: Path) -> Certificate:
    made = Certificate(folder / "certificate.pem", folder / "key.pem")
    wishes = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    named = ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"]
    files = ["-keyout", str(made.key), "-out", str(made.path)]
    subprocess.run([program("openssl"), "req", *wishes, *named, *files], check=True, capture_output=True, timeout=60)
    return made


@dataclass(frozen=True)
class Proxy:
    """A running proxy, with the ports of its plain and its encrypted side."""

    plain: int
    secure: int
    certificate: Certificate

    @property
    def host(self) -> str:
        return f"{NAME}:{self.secure}"

    def client(self, **headers: str) -> httpx.Client:
        """Speaks to the encrypted side as to NAME."""
        transport = _Named(verify=self.certificate.trusting, retries=0)
        url = f"https://127.0.0.1:{self.secure}"
        return httpx.Client(
            base_url=url, transport=transport, headers={"Host": self.host, **headers}, timeout=SECONDS, trust_env=False
        )

    def connect(self, sent: bytes) -> ssl.SSLSocket:
        """A connection to the encrypted side that has sent something."""
        made = socket.create_connection(("127.0.0.1", self.secure), timeout=SECONDS)
        wrapped = self.certificate.trusting.wrap_socket(made, server_hostname=NAME)
        wrapped.sendall(sent)
        return wrapped


class _Named(httpx.HTTPTransport):
    """Names the server in the TLS handshake, which is reached by its address."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.extensions["sni_hostname"] = NAME
        return super().handle_request(request)


def filled(text: str, changes: Mapping[str, str]) -> str:
    """A file of the documentation with the addresses of a test. Each of them must be in it."""
    for before, after in changes.items():
        assert before in text, f"{before!r} is not in the file"
        text = text.replace(before, after)
    return text


@contextmanager
def nginx(folder: Path, text: str, port: int) -> Iterator[Proxy]:
    """Starts nginx with a file of the documentation, in front of a server on a port."""
    made = Proxy(free_port(), free_port(), make_certificate(folder))
    changes = {
        "listen 80": f"listen 127.0.0.1:{made.plain}",
        "listen 443": f"listen 127.0.0.1:{made.secure}",
        "/etc/ssl/headway/certificate.pem": str(made.certificate.path),
        "/etc/ssl/headway/key.pem": str(made.certificate.key),
        "127.0.0.1:8642": f"127.0.0.1:{port}",
    }
    with bare_nginx(folder, filled(text, changes), [made.plain, made.secure]):
        yield made


@contextmanager
def bare_nginx(folder: Path, servers: str, ports: list[int]) -> Iterator[None]:
    """Starts nginx with some servers, which listen on some ports."""
    (folder / "headway.conf").write_text(servers)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "\n".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        f"daemon off;\nmaster_process on;\nworker_processes 1;\n{user}\npid {folder}/nginx.pid;\n"
        f"error_log {folder}/error.log;\nevents {{ worker_connections 1024; }}\n"
        f"http {{\naccess_log off;\n{paths}\ninclude {folder}/headway.conf;\n}}\n"
    )
    log = folder / "error.log"
    words = [program("nginx"), "-p", str(folder), "-e", str(log), "-c", str(folder / "nginx.conf")]
    with _running(words, folder, ports):
        yield


@contextmanager
def caddy(folder: Path, text: str, port: int) -> Iterator[Proxy]:
    """Starts Caddy with a file of the documentation, in front of a server on a port."""
    made = Proxy(free_port(), free_port(), make_certificate(folder))
    certificate = made.certificate
    ports = f"admin off\n    http_port {made.plain}\n    https_port {made.secure}\n    default_bind 127.0.0.1"
    changes = {
        "{\n    servers {": f"{{\n    {ports}\n    servers {{",
        f"{NAME} {{": f"{NAME} {{\n    tls {certificate.path} {certificate.key}",
        "127.0.0.1:8642": f"127.0.0.1:{port}",
    }
    (folder / "Caddyfile").write_text(filled(text, changes))
    words = [program("caddy"), "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]
    with _running(words, folder, [made.plain, made.secure]):
        yield made


@contextmanager
def _running(words: list[str], folder: Path, ports: list[int]) -> Iterator[None]:
    said = folder / "said.txt"
    environment = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with said.open("wb") as out:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)
    try:
        until(lambda: process.poll() is not None or all(_answers(port) for port in ports), "that the proxy listens")
        assert process.poll() is None, said.read_text() + (folder / "error.log").read_text()
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        found: int = free.getsockname()[1]
    return found


def _answers(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0
