"""Ends the processes of lost agents, and samples the load of connected agents.

An agent counts as missing from the time at which a running reaper first misses it, so that an outage of the control
plane, during which no heartbeat can arrive, fails no agent.
"""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import structlog

from controlplane.core.events import ProcessDied
from controlplane.fleet.models import Agent, AgentSample
from controlplane.fleet.samples import sample_of
from controlplane.fleet.services import agent_disconnected, agents_online, agents_remove_absent
from controlplane.jobs.services import audit
from controlplane.protocol.messages import ProcessName
from controlplane.runtime import agents, log, names, queue, ticks
from controlplane.runtime.job_failures import isolated_step
from controlplane.runtime.presence import HERE_MS, agents_now, gateway_trouble
from controlplane.runtime.redis import Client, shared

GONE_MS: Final = 10_000
"""Missing for longer than this, an agent's processes are lost."""

BLIND_MS: Final = 3_000
"""If the last check is older than this, agents were not monitored: all timeouts restart, as while a gateway is
missing."""

GONE_STATUS: Final = -1

logger = structlog.get_logger(__name__)


def reap_offline_agents(client: Client | None = None) -> list[int]:
    """Append ``ProcessDied`` for every process of agents that have been missing too long; returns these agents."""
    client = client or shared()
    now_ms = _now_ms(client)
    missing = _missing_since(client, now_ms)
    _mark_returned(client, now_ms)
    gone = [agent for agent, since in missing.items() if now_ms - since > GONE_MS]
    for agent in gone:
        end_lost_processes(client, agent)
    return gone


def end_lost_processes(client: Client, agent: int) -> None:
    """Report every process that the agent should run as dead."""
    for name in agents.ordered_processes(client, agent):
        with isolated_step("ending processes of lost agents", name.job, client):
            _report_lost(client, agent, name)
    client.hdel(names.AGENTS, str(agent))
    logger.warning("agent gone", agent=agent)


def _report_lost(client: Client, agent: int, name: ProcessName) -> None:
    detail = f"its machine has been unreachable for more than {GONE_MS // 1000} s"
    event = ProcessDied(
        role=name.role,
        index=name.index,
        instance=name.instance,
        status=GONE_STATUS,
        detail=detail,
        is_agent_lost=True,
    )
    with suppress(log.LogClosed):
        log.append_event(name.job, event, client=client)
    agents.forget_process(client, agent, name)


def remove_absent_agents() -> list[str]:
    """Remove machines that have been offline for as long as their enrolment token allows; returns their names."""
    removed = agents_remove_absent()
    for name in removed.values():
        logger.info("agent removed", agent=name, why="it was offline for as long as its enrolment token allows")
        audit(actor="control plane", action="agent-remove", subject=f"agent {name}")
    for agent in removed:
        agents.close_connection(shared(), agent)
    return list(removed.values())


def sample_presence(client: Client | None = None) -> int:
    """Store the load of every connected agent and notify pages; returns the number of agents."""
    client = client or shared()
    now_ms = _now_ms(client)
    here = {agent: heartbeat for agent, heartbeat in agents_now(client).items() if now_ms - heartbeat.at_ms < HERE_MS}
    known = set(Agent.objects.filter(pk__in=here).values_list("pk", flat=True))
    samples = [
        sample_of(agent, _when(heartbeat.at_ms), heartbeat.load)
        for agent, heartbeat in sorted(here.items())
        if agent in known and heartbeat.load
    ]
    AgentSample.objects.bulk_create(samples)
    Agent.objects.filter(pk__in=known).update(seen_at=_when(now_ms))
    if known:
        ticks.publish(client, fleet=True)
    return len(known)


def _missing_since(client: Client, now_ms: int) -> dict[int, int]:
    """Since when each agent has been missing, as observed by a reaper that ran all the time."""
    last_look = int(client.getset(names.REAPER_BEAT, now_ms) or 0)
    is_blind = now_ms - last_look > BLIND_MS or gateway_trouble(client)
    noted = {} if is_blind else client.hgetall(names.MISSING_AGENTS)
    before = {int(agent): int(since) for agent, since in noted.items()}
    silent = [agent for agent, heartbeat in agents_now(client).items() if now_ms - heartbeat.at_ms > HERE_MS]
    missing = {agent: before.get(agent, now_ms) for agent in silent}
    client.delete(names.MISSING_AGENTS)
    if missing:
        client.hset(names.MISSING_AGENTS, items=[part for item in missing.items() for part in item])
    marked = [agent for agent in missing if agent not in before and agent_disconnected(agent)]
    if marked:
        ticks.publish(client, fleet=True)
    return missing


def _mark_returned(client: Client, now_ms: int) -> None:
    """Mark agents as online that were missing and send heartbeats again over an open connection.

    An agent's hello is handled before its heartbeats arrive, so a returning agent may be counted as missing meanwhile.
    """
    connected = {int(agent) for agent in client.hkeys(names.AGENT_CONNECTIONS)}
    online = [agent for agent, heartbeat in agents_now(client).items() if now_ms - heartbeat.at_ms <= HERE_MS]
    if agents_online([agent for agent in online if agent in connected]):
        ticks.publish(client, fleet=True)
        queue.request_schedule()


def _now_ms(client: Client) -> int:
    seconds, microseconds = client.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


def _when(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC)
