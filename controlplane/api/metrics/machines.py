"""Metrics of machines: their heartbeats in Redis, and their slots."""

from collections import Counter
from typing import Final

from controlplane.api.metrics.families import Families, measured_name
from controlplane.fleet.models import Agent, Reservation
from controlplane.jobs.viewing import visible
from controlplane.protocol.measurements import OF_MACHINES
from controlplane.runtime import presence
from controlplane.runtime.presence import LastHeartbeat

MOST_MACHINES: Final = 500
"""Maximum number of machines per scrape: online ones first, then by name."""


def describe_machines(families: Families, heartbeats: dict[int, LastHeartbeat], now_ms: float) -> int:
    """Add every metric of machines; return how many machines were left out."""
    order = (Agent.State.ONLINE, Agent.State.OFFLINE)
    known = visible(Agent.objects.all()).values_list("pk", "name", "state", "slots", "server_slots")
    machines = sorted(known, key=lambda row: (order.index(Agent.State(row[2])), row[1]))
    held = Counter(Reservation.objects.order_by().values_list("agent_id", "role"))
    for pk, name, state, slots, server_slots in machines[:MOST_MACHINES]:
        labels = {"machine": name}
        families.gauge(
            "paceline_machine_up", "1 while its agent is connected.", int(state == Agent.State.ONLINE), labels
        )
        for role, offered in (("worker", len(slots)), ("server", server_slots)):
            by_role = labels | {"role": role}
            families.gauge("paceline_machine_slots", "Slots of the machine.", offered, by_role)
            families.gauge("paceline_machine_slots_reserved", "Slots reserved by jobs.", held[pk, role], by_role)
        if (heartbeat := heartbeats.get(pk)) is None:
            continue
        age_s = max(0.0, now_ms - heartbeat.at_ms) / 1000
        families.gauge("paceline_machine_heartbeat_age_seconds", "Seconds since its last heartbeat.", age_s, labels)
        if now_ms - heartbeat.at_ms <= presence.HERE_MS:
            for each in OF_MACHINES:
                text = f"Last reported value: {each.title}."
                families.gauge(measured_name("machine", each), text, heartbeat.load.get(each.name), labels)
    return max(0, len(machines) - MOST_MACHINES)
