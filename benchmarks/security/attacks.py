"""The attacks of ``bench hostile``: what an anonymous client or the owner of one machine can do.

Each runs in a separate process, for a bounded time and with a bounded number of connections, and counts the answers.
Nothing here needs more than an address or the credential of one machine.
"""

import asyncio
import io
import resource
import socket
import struct
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import httpx

from benchmarks.security.context import AttackContext, AttackResult
from benchmarks.security.malicious_agent import ends_of_others, offers, poison

MIB: Final = 2**20
ANONYMOUS_BYTES: Final = 4_000
"""Just what a client that is not logged in may send."""
BODIES: Final = 120
AT_ONCE: Final = 8
ANONYMOUS: Final = 1_400
"""More than 1,024, the descriptors that a process often has."""
REOPENED_PER_TURN: Final = 50
TURN_S: Final = 0.1
ENTRIES: Final = 250_000
"""Files in a zip of 29 MiB that holds nothing."""

Attack = Callable[[AttackContext], AttackResult]


def bodies(context: AttackContext) -> AttackResult:
    """Documents of anonymous clients with the largest allowed sizes, in YAML and JSON."""
    kinds = [
        (path, kind, body)
        for path, size in (("agents/enrol", MIB), ("agents/enrol", ANONYMOUS_BYTES), ("jobs", MIB))
        for kind, body in (
            ("application/yaml", b"a: [" + b"1," * (size // 2 - 4) + b"1]"),
            ("application/json", b"[" * (size // 2)),
        )
    ]

    async def post(client: httpx.AsyncClient, number: int) -> str:
        path, kind, body = kinds[number % len(kinds)]
        what = f"{len(body) // 1024} KiB of {kind.partition('/')[2]} to {path}"
        try:
            reply = await client.post(f"/api/v1/{path}", content=body, headers={"Content-Type": kind})
            return f"{what}: HTTP {reply.status_code}"
        except httpx.HTTPError as error:
            return f"{what}: {type(error).__name__}"

    async def run() -> Counter[str]:
        limits = httpx.Limits(max_connections=AT_ONCE)
        async with httpx.AsyncClient(
            base_url=context.url, limits=limits, timeout=context.seconds, trust_env=False
        ) as client:
            return Counter(await asyncio.gather(*(post(client, number) for number in range(BODIES))))

    return AttackResult(answers=asyncio.run(run()), number=context.number)


def zips(context: AttackContext) -> AttackResult:
    """A model that is nothing but a list of files, from a worker of the attacker's own."""
    result, body = AttackResult(number=context.number, key=context.key), _empty_files()
    headers = {"Authorization": f"Process worker:{context.key}", "Content-Type": "application/octet-stream"}
    with httpx.Client(base_url=context.url, timeout=60.0, trust_env=False) as client:
        for _ in range(2):
            try:
                reply = client.put(f"/api/v1/jobs/{context.own_job}/model", content=body, headers=headers)
                result.answers[f"HTTP {reply.status_code}"] += 1
            except httpx.HTTPError as error:
                result.answers[type(error).__name__] += 1
    return result


def anonymous_at_servers(context: AttackContext) -> AttackResult:
    """Connections to parameter servers that say nothing, or a byte now and then."""
    return _anonymous(context, context.data_ports, [b"", b"PACE" + bytes(60)])


def anonymous_at_the_web(context: AttackContext) -> AttackResult:
    """Connections to the web process that say nothing, half a request, or a body of which little comes."""
    head = b"Host: 127.0.0.1\r\nX-Slow: "
    halves = [
        b"",
        b"GET /healthz HTTP/1.1\r\n" + head + b"x" * 200,
        b"POST /api/v1/agents/enrol HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Content-Length: 100000\r\n\r\n" + b" " * 200,
    ]
    return _anonymous(context, [int(context.url.rpartition(":")[2])], halves, at_once=len(b"POST /api"))


ATTACKS: Final[Mapping[str, Attack]] = {
    "anonymous bodies": bodies,
    "poisoned values": poison,
    "ends of others' processes": ends_of_others,
    "huge offers": offers,
    "zips of nothing": zips,
    "anonymous connections to servers": anonymous_at_servers,
    "anonymous connections to the web": anonymous_at_the_web,
}
"""By name, in the order in which they are tried: later ones use what earlier ones learned."""


def is_ready() -> bool:
    """Yes, once this process has imported what attacks need."""
    return True


def perform(name: str, context: AttackContext) -> AttackResult:
    """One of them; for a separate process."""
    return ATTACKS[name](context)


def _anonymous(
    context: AttackContext, ports: Sequence[int], says: Sequence[bytes], *, at_once: int = 1
) -> AttackResult:
    """Hold many connections open, each saying its bytes one by one; those that are ended are opened again."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    result, held = AttackResult(number=context.number, key=context.key), list[tuple[socket.socket, memoryview]]()
    until, opened = time.monotonic() + context.seconds, 0
    while time.monotonic() < until and ports:
        missing = ANONYMOUS - len(held)
        for _ in range(missing if not opened else min(missing, REOPENED_PER_TURN)):
            try:
                called = socket.create_connection(("127.0.0.1", ports[opened % len(ports)]), timeout=0.2)
            except OSError as error:
                result.answers[f"not connected ({type(error).__name__})"] += 1
                break
            called.setblocking(False)
            held.append((called, memoryview(says[opened % len(says)])))
            opened += 1
        held = [each for each in (_drip(called, rest, at_once, result) for called, rest in held) if each is not None]
        time.sleep(TURN_S)
    result.answers["opened"], result.answers["held at the end"] = opened, len(held)
    for called, _ in held:
        called.close()
    return result


def _drip(
    called: socket.socket, rest: memoryview, size: int, result: AttackResult
) -> tuple[socket.socket, memoryview] | None:
    """Say a little more; None if the other side has ended it."""
    try:
        with suppress(BlockingIOError):
            while data := called.recv(4096):
                if data.startswith(b"HTTP/"):
                    result.answers[data[:12].decode(errors="replace")] += 1
            raise ConnectionResetError
        if rest:
            called.send(rest[:size])
    except OSError:
        result.answers["ended"] += 1
        called.close()
        return None
    return called, rest[size:]


def _empty_files() -> bytes:
    """A zip whose directory names ``ENTRIES`` files of no bytes, all in one place."""
    first = io.BytesIO()
    with zipfile.ZipFile(first, "w") as archive:
        archive.writestr("0.npy", b"")
    local = first.getvalue()[: first.getvalue().index(b"PK\x01\x02")]
    entries = bytearray()
    for at in range(ENTRIES):
        name = b"%064d.npy" % at
        entries += struct.pack("<4s6H3I5H2I", b"PK\x01\x02", 20, 20, 0, 0, 0, 33, 0, 0, 0, len(name), 0, 0, 0, 0, 0, 0)
        entries += name
    count = min(ENTRIES, 0xFFFF)
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, count, count, len(entries), len(local), 0)
    return local + bytes(entries) + end
