"""Who is too fast, too slow, or makes no sense: held back, told or closed by rule, and no other notices."""

import asyncio
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from controlplane.core.events import WorkerMessageReceived
from controlplane.gateway import close_codes, rate_limiter
from controlplane.gateway import sockets as gateway_sockets
from controlplane.gateway.rate_limiter import RateLimiter
from controlplane.jobs.models import Job
from controlplane.protocol.codec import BadFrame, encode, from_agent, from_server, from_worker
from controlplane.protocol.messages import AgentHello, ProcessEnded, ProcessName, ServerHello, SlotOffer
from controlplane.runtime.redis import Client
from tests.gateway.conftest import CREDENTIAL
from tests.gateway.test_pages import knock as knock_as_page
from tests.gateway.test_processes import HELLO, heard
from tests.gateway.transports import Enter, close_code, eventually, knock
from tests.runtime.support import report

SERVER_HELLO = ServerHello(number=1, host="127.0.0.1", port=4000, tensor_sizes=[640, 10])
AGENT_HELLO = AgentHello(
    number=1,
    name="m1",
    version="1",
    host="127.0.0.1",
    slots=[SlotOffer()],
    server_slots=1,
    labels={},
    cpu_count=1,
    memory_bytes=1,
)
ENDED = ProcessEnded(number=2, process=ProcessName(job=7, role="worker", index=0, instance="w0.0.1"), status=0)
VALID = [encode(message) for message in (HELLO, report(2).message, SERVER_HELLO, AGENT_HELLO, ENDED)]
CORPUS = [
    b"",
    b"\x00",
    b"\xc1",
    b"\x80",
    b"\x90" * 2_000,
    b"\x81\xa4type\xa6report",
    b"\xdf\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b'{"type": "worker-hello"}',
    msgspec.msgpack.encode({"type": "report", "number": -1}),
    msgspec.msgpack.encode({"type": "worker-hello", "number": 2**63, "parameter_count": 1, "sample_count": 1}),
    msgspec.msgpack.encode({"type": "worker-hello", "number": 1, "parameter_count": "many", "sample_count": None}),
    msgspec.msgpack.encode({"type": "nothing-we-know"}),
    msgspec.msgpack.encode([1, 2, 3]),
]


def mangled(chance: random.Random) -> bytes:
    """A valid message with a few bytes changed, cut off, or put twice."""
    frame = bytearray(chance.choice(VALID))
    for _ in range(chance.randint(1, 6)):
        frame[chance.randrange(len(frame))] = chance.randrange(256)
    return bytes(frame[: chance.randint(1, len(frame))] * chance.randint(1, 2))


@given(frame=st.one_of(st.binary(max_size=200), st.sampled_from(CORPUS), st.randoms().map(mangled)))
def test_any_frame_is_a_message_or_a_typed_error(frame: bytes) -> None:
    for codec in (from_worker, from_server, from_agent):
        with suppress(BadFrame):
            assert isinstance(codec.decode(frame), msgspec.Struct)


@pytest.mark.parametrize("path", ["worker", "server", "agent", "pages"])
async def test_nonsense_on_one_socket_is_closed_by_rule_and_no_other_notices(
    gateway: str, client: Client, job: Job, agent: int, session: str, path: str
) -> None:
    chance = random.Random(7)
    frames: list[bytes | str] = [*CORPUS, *(mangled(chance) for _ in range(40)), "text", '{"type": "refresh"'] * 2
    async with knock(gateway, job.pk, index=1, instance="w1.0.1") as bystander:
        codes = set()
        while frames:
            async with _knock_at(gateway, job.pk, session, path) as socket:
                codes |= await _send_until_closed(socket, frames)
        await bystander.send(encode(HELLO))
        await eventually(
            lambda: [e for e in heard(client, job.pk) if isinstance(e, WorkerMessageReceived) and e.rank == 1]
        )
        assert bystander.close_code is None
    assert codes <= {close_codes.MALFORMED, close_codes.OVERSIZED, close_codes.TRY_AGAIN}, codes
    assert close_codes.MALFORMED in codes


def _knock_at(gateway: str, job: int, session: str, path: str) -> Any:
    if path == "worker":
        return knock(gateway, job)
    if path == "server":
        return knock(gateway, job, role="server", instance="s0.0.1")
    if path == "pages":
        return knock_as_page(gateway, session)
    headers = {"Authorization": f"Bearer {CREDENTIAL}"}
    return connect(f"{gateway}/ws/agent", additional_headers=headers, subprotocols=["paceline.v1"], compression=None)


async def _send_until_closed(socket: ClientConnection, frames: list[bytes | str]) -> set[int]:
    """Send what is left of the frames; the code, if that was the end of the connection."""
    try:
        while frames:
            await socket.send(frames.pop())
            await asyncio.sleep(0.002)
    except ConnectionClosed:
        return {await close_code(socket) or 0}
    return set()


def test_a_client_above_the_rate_limit_is_delayed() -> None:
    limiter, now_s = RateLimiter(100.0), 50.0
    for lap in range(5):
        for _ in range(4):
            assert not limiter.is_due()
        assert limiter.is_due()
        pause_s = limiter.pause_s(now_s)
        assert pause_s == (0.0 if lap == 0 else pytest.approx(0.05))
        now_s += pause_s
    assert limiter.pause_s(now_s + 0.05) == 0.0


def test_who_does_not_slow_down_is_a_flood_and_who_pauses_is_none() -> None:
    limiter, now_s = RateLimiter(100.0), 0.0
    limiter.pause_s(now_s)
    while not limiter.floods:
        now_s += limiter.pause_s(now_s)
    assert now_s == pytest.approx(rate_limiter.FLOOD_S, abs=0.1)
    assert limiter.pause_s(now_s + 1.0) == 0.0
    assert not limiter.floods


async def test_a_flood_is_held_back_and_then_closed_while_others_are_served(
    enter: Enter, client: Client, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limiter, "FLOOD_S", 0.3)
    monkeypatch.setattr(gateway_sockets, "MACHINE_PER_S", 200.0)
    old = encode(HELLO)  # the same number again and again: the engine takes none of it
    async with enter(job.pk) as flooding, enter(job.pk, index=1, instance="w1.0.1") as bystander:

        async def flood() -> None:
            while True:
                await flooding.send(old)
                await asyncio.sleep(0.001)  # five times the limit, and what was received is read

        with pytest.raises(ConnectionClosed):
            async with asyncio.timeout(30):
                await flood()
        assert flooding.close_code == close_codes.FLOOD
        await bystander.send(encode(HELLO))
        await eventually(
            lambda: [e for e in heard(client, job.pk) if isinstance(e, WorkerMessageReceived) and e.rank == 1]
        )


def test_close_codes_are_documented() -> None:
    manual = (Path(__file__).parents[2] / "docs" / "operating.md").read_text()
    assert [
        row for code, meaning in close_codes.MEANING.items() if (row := f"| {code} | {meaning} |") not in manual
    ] == []
