"""Processes authenticate by keys of their job, but may stay connected only while their machine's credential is valid.

So a key that was stolen from a machine together with its credential is useless once that credential expires.
"""

from collections.abc import Collection
from datetime import datetime

from django.utils import timezone

from controlplane.fleet.credentials import agents_near_end, credentials_over
from controlplane.gateway.connections import Peer
from controlplane.jobs.models import Process


def processes_over(jobs: Collection[int], *, now: datetime | None = None) -> dict[Peer, str]:
    """Processes of these jobs that may not be connected, each with the reason and the cure.

    At most two queries; usually the first finds nothing. Processes that the database does not know yet may connect.
    """
    now = now or timezone.now()
    rows = Process.objects.filter(job__in=jobs, agent__in=agents_near_end(now))
    processes = {
        Peer(job=job, role="worker" if role == "worker" else "server", index=index, instance=instance): agent
        for agent, job, role, index, instance in rows.values_list("agent", "job", "role", "index", "instance")
    }
    if not processes:
        return {}
    over = credentials_over(set(processes.values()), now=now)
    return {peer: _sentence(over[agent]) for peer, agent in processes.items() if agent in over}


def _sentence(why: str) -> str:
    return f"the machine on which this process was started is not allowed to connect: {why}"
