"""Connections that owe something are ended by their deadline, and the others are answered meanwhile.

Real sockets against a real uvicorn in a process of its own, which has few descriptors; nothing leaves this machine.
"""

import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import httpx
import pytest

from tests.gateway.guarded_server import Http
from tests.support.waiting import eventually

SOFT, HARD = 128, 400
PATIENCE_S = 15.0
"""Far more than any deadline of the server: machines are busy."""

Address = tuple[str, int]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        host, port = probe.getsockname()
    log = tmp_path_factory.mktemp("guard") / "web.log"
    command = [
        *(sys.executable, "-m", "uvicorn", "tests.gateway.guarded_server:application", "--port", str(port)),
        *("--http", "tests.gateway.guarded_server:Http", "--ws", "controlplane.gateway.guarded:WebSocket"),
        *("--lifespan", "off", "--log-level", "warning", "--timeout-graceful-shutdown", "1"),
    ]
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            stdout=file,
            stderr=file,
            cwd=Path(__file__).parents[2],
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT, HARD)),
        )
    try:
        eventually(lambda: listens((host, port)), what="the server")
        yield host, port
    finally:
        process.terminate()
        process.wait(20)


def listens(address: Address) -> bool:
    try:
        socket.create_connection(address, 1.0).close()
    except OSError:
        return False
    return True


@pytest.fixture
def opened(address: Address) -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack
    eventually(lambda: is_answered(address), what="an answer once all are gone")


def connect(address: Address, stack: ExitStack, *said: bytes) -> socket.socket:
    connection = stack.enter_context(closing(socket.create_connection(address, PATIENCE_S)))
    for data in said:
        connection.sendall(data)
    return connection


def ending(connection: socket.socket) -> bytes:
    """All that is said until the other side ends it; fails where it does not."""
    said = b""
    try:
        while data := connection.recv(65536):
            said += data
    except ConnectionError:
        pass
    except TimeoutError:
        pytest.fail("the connection was not ended")
    return said


def is_answered(address: Address) -> bool:
    return httpx.get("http://{}:{}/".format(*address), timeout=PATIENCE_S, trust_env=False).status_code == 200


HALF = b"GET / HTTP/1.1\r\nHost: a\r\n"
BODY = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n"
WEBSOCKET = (
    b"GET %s HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


@pytest.mark.parametrize(
    "said",
    [b"", b"\r\n", HALF, BODY, BODY + b"x" * 999, WEBSOCKET % b"/hang"],
    ids=["silent", "blank", "half a head", "no body", "nearly a body", "no handshake"],
)
def test_what_is_not_finished_by_its_deadline_is_ended(address: Address, opened: ExitStack, said: bytes) -> None:
    assert b"200 OK" not in ending(connect(address, opened, said))


def test_a_head_that_arrives_in_drops_has_the_same_deadline(address: Address, opened: ExitStack) -> None:
    connection = connect(address, opened, HALF + b"X-More: ")
    eventually(lambda: ends(connection, b"x"), what="its end", seconds=PATIENCE_S)


def test_blank_lines_after_an_answer_keep_no_connection(address: Address, opened: ExitStack) -> None:
    connection = connect(address, opened, HALF + b"\r\n")
    assert connection.recv(100).startswith(b"HTTP/1.1 200")
    eventually(lambda: ends(connection, b"\r\n"), what="its end", seconds=PATIENCE_S)


def ends(connection: socket.socket, drop: bytes) -> bool:
    """Whether the other side has ended it; if not, it gets a drop more."""
    connection.settimeout(0.1)
    try:
        connection.sendall(drop)
        return connection.recv(1000) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_a_head_without_end_is_refused(address: Address, opened: ExitStack) -> None:
    connection = connect(address, opened, HALF + b"X-More: " + b"x" * 2 * Http.limits.head_bytes)
    assert b"431" in ending(connection)


def test_a_reader_that_takes_nothing_is_ended(address: Address, opened: ExitStack) -> None:
    connection = connect(address, opened, b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
    eventually(lambda: is_reset(connection), what="its end", seconds=PATIENCE_S, every=0.2)
    assert len(ending(connection)) < 50_000_000


def is_reset(connection: socket.socket) -> bool:
    try:
        connection.sendall(b"\r\n")
    except ConnectionError:
        return True
    return False


@pytest.mark.parametrize("said", [b"", HALF, BODY], ids=["silent", "half a head", "no body"])
def test_more_of_them_than_the_cap_and_than_descriptors_leave_the_others_answered(
    address: Address, opened: ExitStack, said: bytes
) -> None:
    for number in range(2 * HARD):
        with suppress(ConnectionError):  # it made room already
            connect(address, opened, said)
        if number % 50 == 0:
            assert is_answered(address)
    assert is_answered(address)


def test_an_upload_that_continues_is_not_the_one_that_makes_space(address: Address, opened: ExitStack) -> None:
    size = 2_000_000
    upload = connect(address, opened, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size)
    for _ in range(20):
        upload.sendall(b"x" * (size // 20))
        for _ in range(2):
            connect(address, opened, BODY)
    assert upload.recv(100).startswith(b"HTTP/1.1 200")


def test_requests_above_the_limit_get_a_retry_after(address: Address, opened: ExitStack) -> None:
    for _ in range(Http.limits.requests):
        connect(address, opened, b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n")
    url = "http://{}:{}/".format(*address)

    def refused() -> httpx.Response | None:
        reply = httpx.get(url, timeout=PATIENCE_S, trust_env=False)
        return reply if reply.status_code == 503 else None

    reply = eventually(refused, what="a refusal")
    assert (reply.headers["content-type"], reply.headers["retry-after"]) == ("application/problem+json", "5")
    assert reply.json()["status"] == 503


def test_connections_above_the_limit_get_a_retry_after(address: Address, opened: ExitStack) -> None:
    """Websockets, which owe nothing."""
    replies = []
    for _ in range(HARD - 256 + 3):
        connection = connect(address, opened, WEBSOCKET % b"/")
        replies.append(connection.recv(1000).split(b"\r\n")[0])
    assert replies[0].startswith(b"HTTP/1.1 101")
    assert replies[-1].startswith(b"HTTP/1.1 503")


def test_the_process_raises_its_limit_to_all_descriptors_that_it_may_have(address: Address) -> None:
    assert httpx.get("http://{}:{}/".format(*address), trust_env=False).text == str(HARD)
