"""Reads the topology of a job: machines of its processes, connections, and waiting of its workers."""

from typing import Final

from controlplane.jobs.machines import machine_name, machine_of
from controlplane.jobs.models import Job, Process
from controlplane.jobs.stored_specs import stored_spec
from controlplane.telemetry.metrics import ITERATION
from frontend.figures.rows import View
from frontend.figures.topology import ServerNode, Topology, WorkerNode
from frontend.queries.figures import ranks_of
from frontend.queries.history import History
from frontend.queries.job import servers

RECENT: Final = 10
RACK: Final = "rack"
"""The machine label for its rack."""


def topology(job: Job, view: View) -> Topology:
    """The latest instance of each shown worker, and the servers."""
    ranks, waits = set(ranks_of(job, view)), _waits(job)
    rows = Process.objects.filter(job=job).select_related("agent").order_by("started_at", "id")
    latest = {(row.role, row.index): row for row in rows}
    held = {line.index: line.held_bytes for line in servers(job)}
    return Topology(
        workers=tuple(
            WorkerNode(index=index, machine=_machine(row), rack=_rack(row), waiting=waits.get(index))
            for (role, index), row in sorted(latest.items())
            if role == "worker" and index in ranks
        ),
        servers=tuple(
            ServerNode(index=index, machine=_machine(row), rack=_rack(row), held_bytes=held[index])
            for (role, index), row in sorted(latest.items())
            if role == "server" and index in held
        ),
        roster=stored_spec(job).workers,
    )


def _waits(job: Job) -> dict[int, float]:
    found = {}
    for rank, block in History(job).latest(ITERATION, RECENT).items():
        whole = sum(float(block[name].sum()) for name in ITERATION)
        if whole:
            found[rank] = float(block["waiting_s"].sum()) / whole
    return found


def _machine(row: Process) -> str:
    return machine_name(row) or "unknown machine"


def _rack(row: Process) -> str:
    machine = machine_of(row)
    return str(machine.labels.get(RACK, "")) if machine is not None else ""
