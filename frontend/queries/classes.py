"""Determines the machine class of each worker of a job: by label, emulation, scenario or cores."""

from controlplane.fleet.models import Agent
from controlplane.jobs.models import Job, Process
from controlplane.policies.wording import number
from controlplane.simulator.learned_machine import RecordedMachine
from controlplane.simulator.machines import CpuMachine, GpuMachine, MachineSpec
from controlplane.telemetry.models import Simulation
from frontend.queries.simulations import scenario_of
from frontend.queries.wording import counted, emulation_title

LABEL = "class"
"""The label by which operators distinguish machine classes: ``manage.py enroll --label class=fast``."""

MOST = 2_000
"""Maximum number of processes that are read."""


def machine_classes(job: Job) -> dict[int, str]:
    """Machine classes by rank, as text: the operator's label, otherwise the emulated speed, otherwise the cores."""
    if job.simulation is not None:
        return _simulated(job.simulation)
    rows = Process.objects.filter(job=job, role="worker", agent__isnull=False).select_related("agent")
    found: dict[int, str] = {}
    for row in rows.order_by("started_at", "id")[:MOST]:
        if row.agent is not None:
            found[row.index] = (
                _labelled(row.agent) or emulation_title(row.emulate) or counted(row.agent.cpu_count, "core")
            )
    return found


def _labelled(agent: Agent) -> str:
    return str(agent.labels.get(LABEL) or agent.unverified_labels.get(LABEL) or "")


def _simulated(row: Simulation) -> dict[int, str]:
    scenario = scenario_of(row)
    return {rank: _describe(group.machine) for rank, group in enumerate(scenario.machines)} if scenario else {}


def _describe(machine: MachineSpec) -> str:
    """A simulated machine's speed without slowdown."""
    match machine:
        case CpuMachine():
            return f"{number(machine.samples_per_second / machine.slowness)} samples/s"
        case GpuMachine():
            return f"GPU, {number(1 / machine.seconds_per_sample)} samples/s"
        case RecordedMachine():
            return "recorded"
        case _:
            return f"shared, {number(machine.samples_per_second)} samples/s"
