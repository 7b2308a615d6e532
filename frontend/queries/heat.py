"""Reads one metric of every worker over all iterations, from columns or, for long jobs, from rollups.

Rows are grouped by the class of the worker's machine: its label, emulation, scenario or cores.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from controlplane.fleet.removed_machines import Machine
from controlplane.jobs.machines import ON_MACHINES, machine_of
from controlplane.jobs.models import Job, Process
from controlplane.jobs.stored_specs import stored_spec
from controlplane.policies.wording import number
from controlplane.simulator.learned_machine import RecordedMachine
from controlplane.simulator.machines import CpuMachine, GpuMachine, MachineSpec
from controlplane.telemetry.history import Windows, quotient
from controlplane.telemetry.metrics import BUSY, ITERATION
from controlplane.telemetry.models import Simulation
from frontend.figures.rows import Heat, View
from frontend.queries.history import History
from frontend.queries.lanes import machines
from frontend.queries.simulations import scenario_of
from frontend.queries.wording import counted, emulation_title

MAX_CELLS = 60_000
MAX_RANKS = 512

LABEL = "class"
"""The label by which operators distinguish machine classes: ``manage.py enroll --label class=fast``."""

MOST_PROCESSES = 2_000
"""Maximum number of processes that are read."""

Peaks = Callable[[Windows], NDArray[np.float64]]


def heat(job: Job, view: View) -> Heat:
    """The matrix; rows are grouped by machine class and machine.

    For a very large roster, only the first ``MAX_RANKS``.
    """
    ranks = range(min(stored_spec(job).workers, MAX_RANKS))
    width = History(job).width(MAX_CELLS, len(ranks))
    found = History(job).windows(("at_ms", "samples", *ITERATION), width, ranks)
    where, peaks = machines(job), _PEAKS[view.metric or "work"]
    kinds = _kinds(job, sorted(found))
    order = sorted(found, key=lambda rank: (list(kinds.values()).index(kinds[rank]), where.get(rank, ""), rank))
    columns = np.unique(np.concatenate([found[rank].first for rank in order])) if order else np.empty(0, np.int64)
    values = np.full((len(order), len(columns)), np.nan)
    for row, rank in enumerate(order):
        values[row, np.searchsorted(columns, found[rank].first)] = peaks(found[rank])
    return Heat(
        ranks=tuple(order),
        labels=tuple(f"w{rank} {where.get(rank, '')}".strip() for rank in order),
        first=columns.astype(np.int64),
        width=width,
        values=values,
        classes=tuple(kinds[rank] for rank in order) if 1 < len(set(kinds.values())) < len(order) else (),
    )


def _kinds(job: Job, ranks: Sequence[int]) -> dict[int, str]:
    """The machine class of each rank."""
    known = machine_classes(job)
    return {rank: known.get(rank, "unknown") for rank in ranks}


def machine_classes(job: Job) -> dict[int, str]:
    """Machine classes by rank, as text: the operator's label, otherwise the emulated speed, otherwise the cores."""
    if job.simulation is not None:
        return _simulated(job.simulation)
    rows = Process.objects.filter(ON_MACHINES, job=job, role="worker").select_related("agent")
    found: dict[int, str] = {}
    for row in rows.order_by("started_at", "id")[:MOST_PROCESSES]:
        machine = machine_of(row)
        if machine is not None:
            found[row.index] = _labelled(machine) or emulation_title(row.emulate) or counted(machine.cpu_count, "core")
    return found


def _labelled(machine: Machine) -> str:
    return str(machine.labels.get(LABEL) or machine.unverified_labels.get(LABEL) or "")


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


def _peak(names: tuple[str, ...], windows: Windows) -> NDArray[np.float64]:
    """The mean of the sum of some columns, plus the largest excess of any column over its own mean.

    For a single iteration this is the sum. For several, it keeps spikes of any column, which a mean would hide.
    """
    above = [windows.of(name, "max") - windows.mean(name) for name in names]
    peak: NDArray[np.float64] = windows.mean(*names) + np.fmax.reduce(above, axis=0)
    return peak


def _pace(windows: Windows) -> NDArray[np.float64]:
    """Busy seconds per sample."""
    return quotient(_peak(BUSY, windows), windows.mean("samples"))


_PEAKS: Mapping[str, Peaks] = {
    "work": partial(_peak, BUSY),
    "pace": _pace,
    "waiting": partial(_peak, ("waiting_s",)),
    "communication": partial(_peak, ("push_s", "pull_s")),
    "iteration": partial(_peak, ITERATION),
    "share": partial(_peak, ("samples",)),
}
