"""Signs of life and load, in Redis only: who spoke when, by Redis' own clock. Sampled to rows every 10 s."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from controlplane.runtime import names
from controlplane.runtime.redis import AsyncClient, Client, shared
from controlplane.runtime.scripts import DISCONNECT, HEARD

HERE_MS: Final = 4_000
"""Without a sign of life for so long, something is not here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a sign of life says of the machine."""

    cpu: float = 0.0
    memory: float = 0.0
    bytes_sent: int = 0
    bytes_received: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """The last sign of life of one process or agent."""

    at_ms: int
    load: Load


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """A sign of life on its way to Redis."""

    name: str
    age_ms: int
    load: Load


def agents_now(client: Client | None = None) -> dict[int, Sign]:
    """Every agent that was ever heard of, by id."""
    found = (client or shared()).execute_command("HGETALL", names.AGENTS)
    return {int(agent): _sign(value) for agent, value in found.items()}


def processes_now(job: int, client: Client | None = None) -> dict[str, Sign]:
    """Every process of the job that was heard of, by ``role:index:instance``."""
    found = (client or shared()).execute_command("HGETALL", names.presence(job))
    return {name.decode(): _sign(value) for name, value in found.items()}


def last_seen(client: Client, job: int) -> dict[str, int]:
    """When each process of the job gave its last sign of life, in milliseconds of the log's clock."""
    return {name: sign.at_ms for name, sign in processes_now(job, client).items()}


async def heard(client: AsyncClient, hash_name: str, signs: Iterable[Heard]) -> None:
    """Note signs of life in the hash of a job's processes, or of the agents."""
    arguments = [part for sign in signs for part in (sign.name, sign.age_ms, _text(sign.load))]
    if arguments:
        await HEARD.arun(client, [hash_name], *arguments)


async def connected(client: AsyncClient, hash_name: str, name: str, connection: str) -> None:
    """Note that ``connection`` is now the one of ``name``."""
    await client.hset(hash_name, name, connection)


async def disconnected(client: AsyncClient, hash_name: str, name: str, connection: str) -> bool:
    """Note its end; False where a newer connection has taken its place, so that nobody is lost."""
    return bool(await DISCONNECT.arun(client, [hash_name], name, connection))


def _text(load: Load) -> str:
    return f"{load.cpu:.4f} {load.memory:.4f} {load.bytes_sent} {load.bytes_received}"


def _sign(value: bytes) -> Sign:
    at_ms, cpu, memory, sent, received = value.split()
    load = Load(cpu=float(cpu), memory=float(memory), bytes_sent=int(sent), bytes_received=int(received))
    return Sign(at_ms=int(at_ms), load=load)
