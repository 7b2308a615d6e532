"""Clients use the proxy of the environment, except to this machine: as ranks and agents do."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from paceline import AsyncClient, Client, PacelineError

TOKEN = "not-a-secret"


class Listening(ThreadingHTTPServer):
    """Refuses all requests, and notes what each asked for: a proxy is asked for a whole URL."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Refusing)
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Refusing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Listening)
        self.server.asked.append(self.path)
        self.send_error(403)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Listening]:
    with Listening() as listening:
        thread = Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield listening
        finally:
            listening.shutdown()
            thread.join()


def ask(url: str) -> None:
    with Client(url, TOKEN) as client, suppress(PacelineError):
        client.job(7)


def ask_async(url: str) -> None:
    async def ask() -> None:
        async with AsyncClient(url, TOKEN) as client:
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
