"""Commands reach a control plane as ranks and agents do: by the environment's proxy, and with its authorities."""

import asyncio
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from controlplane.protocol.addresses import parse_address
from paceline import AsyncClient, Client, PacelineError, Patience
from tests.support.certificates import Certificates, make_certificates
from workers.enrolment import EnrolmentError, enrol

TOKEN = "not-a-secret"
ONCE = Patience(tries=1)


class Listening(ThreadingHTTPServer):
    """Refuses all requests, and notes what each asked for: a proxy is asked for a whole URL."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Refusing)
        self.asked: list[str] = []

    def encrypt(self, certificates: Certificates) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.chain)
        self.socket = context.wrap_socket(self.socket, server_side=True)

    @property
    def url(self) -> str:
        scheme = "https" if isinstance(self.socket, ssl.SSLSocket) else "http"
        return f"{scheme}://127.0.0.1:{self.server_port}"


class Refusing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Listening)
        self.server.asked.append(self.path)
        self.send_error(403)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Listening]:
    with Listening() as listening:
        if getattr(request, "param", "") == "https":
            listening.encrypt(make_certificates(tmp_path))
        thread = Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield listening
        finally:
            listening.shutdown()
            thread.join()


def ask(url: str) -> None:
    with Client(url, TOKEN, patience=ONCE) as client, suppress(PacelineError):
        client.job(7)


def ask_async(url: str) -> None:
    async def ask() -> None:
        async with AsyncClient(url, TOKEN, patience=ONCE) as client:
            with suppress(PacelineError):
                await client.job(7)

    asyncio.run(ask())


@pytest.mark.parametrize("by", [ask, ask_async])
def test_another_machine_is_reached_by_the_proxy_and_this_one_directly(
    by: Callable[[str], None], server: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, server.url)
    for name in ("NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    by("http://paceline.example.org")
    by(server.url)
    assert server.asked == ["http://paceline.example.org/api/v1/jobs/7", "/api/v1/jobs/7"]


def join(url: str) -> None:
    with suppress(EnrolmentError):
        enrol(parse_address(url), TOKEN, "box")


@pytest.mark.parametrize("server", ["https"], indirect=True)
@pytest.mark.parametrize(("by", "path"), [(ask, "jobs/7"), (ask_async, "jobs/7"), (join, "agents/enrol")])
def test_authorities_of_the_environment_are_trusted(
    by: Callable[[str], None], path: str, server: Listening, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    by(server.url)
    assert server.asked == [], "nobody knows this authority"
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.crt"))
    by(server.url)
    assert server.asked == [f"/api/v1/{path}"]
