"""Reads waiting jobs from the control plane, and the machines that could run them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from paceline.client.sync import Client
from paceline.client.types import Agent, Job
from paceline.on_ray.sizing import Need, Slots

MOST_READ = 50
"""Maximum number of waiting jobs that are considered per round."""

STARTS = "starts"
"""The API's value for a job that has slots already, or gets them in the next round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Demand and machines at one moment."""

    needs: tuple[Need, ...]
    free: Slots
    """Slots of agents that are online and have the labels, in the fleet or not."""
    elsewhere: Slots
    """Slots of all other machines with the labels, in use or free."""
    online: frozenset[str]
    """Names of the fleet's agents."""
    busy: frozenset[str]
    """Those of them with a slot in use."""


def read_demand(client: Client, names: Collection[str], labels: Mapping[str, str]) -> Demand:
    """Read the demand for machines with these ``labels``; ``names`` are the fleet's own agents.

    Raises:
        PacelineError: if the control plane does not respond.
    """
    agents = client.agents()
    waiting = [job for job in client.jobs(state="submitted") if job.waiting is not None]
    by_turn = sorted(waiting, key=lambda job: (-job.priority, job.id))
    jobs = [client.job(job.id) for job in by_turn if job.waiting and job.waiting.status != STARTS][:MOST_READ]
    return demand_of(jobs, agents, frozenset(names), labels)


def demand_of(jobs: Sequence[Job], agents: Sequence[Agent], names: frozenset[str], labels: Mapping[str, str]) -> Demand:
    """Compute the demand from the replies."""
    there = [agent for agent in agents if agent.state == "online" and _has(agent.labels, labels)]
    own = [agent for agent in there if agent.name in names]
    return Demand(
        needs=tuple(
            Need(job=job.id, slots=_needed(job))
            for job in jobs
            if (job.launch == "native" or _has_script(job)) and _has(labels, _requested(job))
        ),
        free=sum((_free(agent) for agent in there), Slots()),
        elsewhere=sum((_all(agent) for agent in there if agent.name not in names), Slots()),
        online=frozenset(agent.name for agent in own),
        busy=frozenset(agent.name for agent in own if agent.reserved),
    )


def _requested(job: Job) -> Mapping[str, str]:
    found: Mapping[str, str] = job.spec.get("labels") or {}
    return found


def _has(labels: Mapping[str, str], requested: Mapping[str, str]) -> bool:
    return all(labels.get(name) == value for name, value in requested.items())


def _has_script(job: Job) -> bool:
    """Whether agents start its ranks."""
    return bool(job.spec.get("command"))


def _needed(job: Job) -> Slots:
    if _has_script(job):
        return Slots(workers=job.workers, scripts=job.workers)
    return Slots(workers=job.workers, servers=job.servers)


def _all(agent: Agent) -> Slots:
    return _slots(agent, len(agent.slots), agent.server_slots)


def _free(agent: Agent) -> Slots:
    held = [row.get("role") for row in agent.reserved]
    return _slots(agent, len(agent.slots) - held.count("worker"), agent.server_slots - held.count("server"))


def _slots(agent: Agent, workers: int, servers: int) -> Slots:
    return Slots(workers=workers, servers=servers, scripts=workers if agent.runs_scripts else 0)
