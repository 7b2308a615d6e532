"""Processes authenticate by keys of their job, but may stay connected only while their machine's credential is valid.

So a key that was stolen from a machine together with its credential is useless once that credential expires.
"""

from collections.abc import Collection
from datetime import datetime

from django.db.models import QuerySet
from django.utils import timezone

from controlplane.fleet.credentials import agents_near_end, credentials_over
from controlplane.gateway.connections import Peer
from controlplane.jobs.models import Process


def processes_over(jobs: Collection[int], *, now: datetime | None = None) -> dict[Peer, str]:
    """Processes of these jobs that may no longer be connected, each with the reason and the cure."""
    return _over(Process.objects.filter(job__in=jobs), now or timezone.now())


def process_over(peer: Peer, *, now: datetime | None = None) -> str | None:
    """Why this process may not connect, and the cure; None if it may, or if the database does not know it yet."""
    rows = Process.objects.filter(job=peer.job, role=peer.role, index=peer.index, instance=peer.instance)
    return _over(rows, now or timezone.now()).get(peer)


def _over(rows: QuerySet[Process], now: datetime) -> dict[Peer, str]:
    """As ``processes_over``, with at most two queries; usually the first finds nothing."""
    found = rows.filter(agent__in=agents_near_end(now)).values_list("agent", "job", "role", "index", "instance")
    processes = {
        Peer(job=job, role="worker" if role == "worker" else "server", index=index, instance=instance): agent
        for agent, job, role, index, instance in found
    }
    if not processes:
        return {}
    over = credentials_over(set(processes.values()), now=now)
    return {peer: _sentence(over[agent]) for peer, agent in processes.items() if agent in over}


def _sentence(why: str) -> str:
    return f"the machine on which this process was started is not allowed to connect: {why}"
