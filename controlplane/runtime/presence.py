"""Heartbeats and load, in Redis only, by Redis' clock. Sampled to rows every 10 s."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import msgspec

from controlplane.core.events import LAUNCHER
from controlplane.runtime import liveness, names
from controlplane.runtime.redis import AsyncClient, Client, shared
from controlplane.runtime.scripts import DISCONNECT, RECORD_HEARTBEATS
from controlplane.runtime.wire import Caller

HERE_MS: Final = 4_000
"""A process or agent is offline after this long without a heartbeat."""

GATEWAY_SILENT_MS: Final = 2_000
GATEWAY_BACK_MS: Final = 15_000
"""How long to wait for a gateway that disappeared."""

TURN: Final = "turn_s"
"""In a gateway's heartbeat: how long a turn of its event loop takes."""
OVERLOADED: Final = "overloaded_s"
"""In a gateway's heartbeat: for how long that has been more than ``MOST_TURN_S``."""

MOST_TURN_S: Final = 0.1
"""A message is handled some turns after it has arrived: above this, a gateway is overloaded, and heartbeats that have
arrived are not in Redis for a second or more."""

MOST_OVERLOADED_S: Final = 30.0
"""A longer overload is no excuse: machines and processes are lost during it, too."""


Load = Mapping[str, float]
"""Measurements of a machine or gateway in its heartbeat, by name; processes report none."""
NO_LOAD: Final[Load] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class LastHeartbeat:
    """The last heartbeat of one agent or gateway."""

    at_ms: int
    load: Load


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedHeartbeat:
    """A received heartbeat that is not in Redis yet."""

    name: str
    age_ms: int
    load: Load


def agents_now(client: Client | None = None) -> dict[int, LastHeartbeat]:
    """Every known agent, by id."""
    found = (client or shared()).execute_command("HGETALL", names.AGENTS)
    return {int(agent): _heartbeat(value) for agent, value in found.items()}


def agents_away(client: Client, now_ms: float) -> list[int]:
    """Agents that have sent no heartbeat lately, in order."""
    return sorted(agent for agent, heartbeat in agents_now(client).items() if now_ms - heartbeat.at_ms > HERE_MS)


def gateways_now(client: Client | None = None) -> dict[str, LastHeartbeat]:
    """Every known gateway that was not removed since, by its ``liveness.where``."""
    found = (client or shared()).execute_command("HGETALL", names.GATEWAYS)
    return {name.decode(): _heartbeat(value) for name, value in found.items()}


def gateway_trouble(client: Client) -> str:
    """Why heartbeats may be missing: there is no gateway, or one has just disappeared, or is overloaded; empty if all
    are well.

    A gateway that does not return is removed after ``GATEWAY_BACK_MS`` if there is another.
    """
    found = gateways_now(client)
    seconds, microseconds = client.execute_command("TIME")
    now_ms = int(seconds) * 1000 + int(microseconds) // 1000
    silent_ms = {name: now_ms - heartbeat.at_ms for name, heartbeat in found.items()}
    here = {name: found[name] for name, silent in silent_ms.items() if silent <= GATEWAY_SILENT_MS}
    return _missing(client, silent_ms) or _overloaded(here)


def _overloaded(here: Mapping[str, LastHeartbeat]) -> str:
    turns_s = [
        (each.load.get(TURN, 0.0), name)
        for name, each in here.items()
        if each.load.get(OVERLOADED, 0.0) <= MOST_OVERLOADED_S
    ]
    turn_s, name = max(turns_s, default=(0.0, ""))
    if turn_s <= MOST_TURN_S:
        return ""
    return f"the gateway on {liveness.shown(name)} is overloaded: its event loop takes {turn_s:.1f} s for a turn"


def _missing(client: Client, silent_ms: Mapping[str, int]) -> str:
    missing = sorted((silent, name) for name, silent in silent_ms.items() if silent > GATEWAY_SILENT_MS)
    if not missing:
        return ""
    silent, name = missing[0]
    if len(missing) == len(silent_ms):
        return f"no gateway has sent heartbeats for {silent / 1000:.1f} s"
    for long_silent, gone in missing:
        if long_silent > GATEWAY_BACK_MS:
            _forget_gateway(client, gone)
    if silent > GATEWAY_BACK_MS:
        return ""
    return f"the gateway on {liveness.shown(name)} has sent no heartbeats for {silent / 1000:.1f} s"


def gateway_begins(client: Client) -> None:
    """Remove ended gateways of this machine: their sockets reconnect to the new one, or to others."""
    for name in gateways_now(client):
        if liveness.is_gone_from_here(name):
            _forget_gateway(client, name)


def _forget_gateway(client: Client, name: str) -> None:
    client.hdel(names.GATEWAYS, name)
    client.hdel(names.GATEWAY_SOCKETS, name)


def last_seen(client: Client, job: int) -> dict[str, int]:
    """When each process of the job was last known to be alive, by ``role:index:instance``, in milliseconds of the log's
    clock.
    """
    found = client.execute_command("HGETALL", names.presence(job))
    return {name.decode(): int(value.partition(b" ")[0]) for name, value in found.items()}


def renew_lease(client: Client, job: int) -> None:
    """Record that the launcher of an attached job is alive."""
    RECORD_HEARTBEATS.run(client, [names.presence(job)], LAUNCHER, 0, "")


async def record_heartbeats(caller: Caller, hash_name: str, heartbeats: Iterable[ReceivedHeartbeat]) -> None:
    """Write heartbeats to the hash of a job's processes, or of the agents."""
    arguments = [part for heartbeat in heartbeats for part in (heartbeat.name, heartbeat.age_ms, _text(heartbeat.load))]
    if arguments:
        await RECORD_HEARTBEATS.acall(caller, [hash_name], *arguments)


async def connected(client: AsyncClient, hash_name: str, name: str, connection: str) -> None:
    """Record ``connection`` as the current one of ``name``."""
    await client.hset(hash_name, name, connection)


async def disconnected(client: AsyncClient, hash_name: str, name: str, connection: str) -> bool:
    """Record the end of a connection; False if a newer one has replaced it, so that no process is lost."""
    return bool(await DISCONNECT.arun(client, [hash_name], name, connection))


def _text(load: Load) -> str:
    return msgspec.json.encode(load).decode() if load else ""


def _heartbeat(value: bytes) -> LastHeartbeat:
    """Decode a heartbeat. Earlier releases wrote a load that is not JSON; then only the time is read."""
    at_ms, _, text = value.partition(b" ")
    load = msgspec.json.decode(text, type=dict[str, float]) if text.startswith(b"{") else {}
    return LastHeartbeat(at_ms=int(at_ms), load=load)
