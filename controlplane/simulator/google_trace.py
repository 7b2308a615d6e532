"""Reads the public cluster-usage traces of a production cluster (format 2.1, table ``task_usage``) into machine loads.

A row is one task's use of a machine over some minutes; a machine's load is the sum over its tasks. Times are in
microseconds, CPU and memory in units of the largest machine's.
"""

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
from msgspec.structs import replace

from controlplane.protocol.base import Value
from controlplane.simulator.errors import ScenarioError, TraceError
from controlplane.simulator.machines import GpuMachine, TracedMachine
from controlplane.simulator.scenario import Scenario

COLUMNS: Final = 20
START, END, JOB, TASK, MACHINE, CPU, MEMORY = 0, 1, 2, 3, 4, 5, 6
MICROSECONDS: Final = 1_000_000
MOST_STEPS: Final = 100_000
"""A year in steps of five minutes: a longer trace means a broken row, and would exhaust memory."""


class Usage(Value, frozen=True, kw_only=True):
    """One row: a task's mean use of its machine from ``start_s`` to ``end_s``."""

    start_s: float
    end_s: float
    machine: str
    cpu: float
    memory: float


class Load(Value, frozen=True, kw_only=True):
    """CPU and memory use of one machine, as fractions, in steps."""

    cpu: list[float]
    memory: list[float]
    step_s: float

    def machine(self, *, samples_per_second: float, repeats: bool = False) -> TracedMachine:
        """A machine that trains with the capacity that this load leaves."""
        return TracedMachine(
            samples_per_second=samples_per_second,
            cpu=tuple(self.cpu),
            memory=tuple(self.memory),
            step_s=self.step_s,
            repeats=repeats,
        )


def read_task_usage(lines: Iterable[str], *, name: str = "task_usage") -> list[Usage]:
    """The rows of one file in order; the format has no header.

    Raises:
        TraceError: for the first broken row, with its number and the error.
    """
    rows, number = [], 0
    try:
        for number, row in enumerate(csv.reader(lines), start=1):
            if row:
                rows.append(_usage(row, f"{name}, row {number}"))
    except (csv.Error, UnicodeDecodeError) as error:
        raise TraceError(
            f"{name}, row {number + 1}: {error}, expected a line of text: repair or leave it out"
        ) from None
    if not rows:
        raise TraceError(f"{name}: no rows, expected lines of {COLUMNS} fields: is the file still compressed?")
    return rows


def under(scenario: Scenario, loads: Mapping[str, Load]) -> Scenario:
    """The scenario on machines with the recorded load, in the order of machine ids; each load repeats. This differs
    from the paper's experiment, so the paper's figures are removed.

    Raises:
        TraceError: for fewer machines than the scenario has workers.
        ScenarioError: for machines other than CPU machines.
    """
    specs = scenario.machines
    if len(loads) < len(specs):
        raise TraceError(
            f"the trace has {len(loads)} machines, expected one for each of {len(specs)} workers of "
            f"{scenario.name}: give more of its rows"
        )
    groups = []
    for rank, (group, load) in enumerate(zip(specs, loads.values(), strict=False)):
        speed = getattr(group.machine, "samples_per_second", None)
        if speed is None:
            kind = "a GPU" if isinstance(group.machine, GpuMachine) else "recorded"
            raise ScenarioError(f"machine of w{rank}", kind, "a CPU machine, whose use by others a trace describes")
        machine = load.machine(samples_per_second=speed / getattr(group.machine, "slowness", 1.0), repeats=True)
        groups.append(replace(group, count=1, machine=machine))
    title = f"{scenario.title}, used by others as recorded"
    return replace(scenario, title=title, groups=tuple(groups), paper=())


def loads_of(
    rows: Iterable[Usage], *, step_s: float = 300.0, capacities: Mapping[str, tuple[float, float]] | None = None
) -> dict[str, Load]:
    """The load of each machine from the first row's start to the last row's end, by machine id.

    Args:
        rows: of any number of files together.
        step_s: length of a step; a task counts in a step by the part of it for which it ran.
        capacities: CPU and memory of each machine, in the trace's units (table ``machine_events``); 1 where unknown.

    Raises:
        TraceError: if their times are so far apart that a row must be broken.
    """
    by_machine: dict[str, list[Usage]] = defaultdict(list)
    for row in rows:
        by_machine[row.machine].append(row)
    begin_s = min((row.start_s for found in by_machine.values() for row in found), default=0.0)
    end_s = max((row.end_s for found in by_machine.values() for row in found), default=0.0)
    steps = math.ceil((end_s - begin_s) / step_s)
    if steps > MOST_STEPS:
        raise TraceError(
            f"the trace lasts from {begin_s:g} to {end_s:g} s, expected at most {MOST_STEPS} steps of {step_s:g} s: "
            "leave out the rows of other times"
        )
    known = capacities or {}
    return {
        machine: _load(found, begin_s, steps, step_s, known.get(machine, (1.0, 1.0)))
        for machine, found in sorted(by_machine.items())
    }


def _load(rows: list[Usage], begin_s: float, steps: int, step_s: float, capacity: tuple[float, float]) -> Load:
    cpu, memory = np.zeros(steps), np.zeros(steps)
    for row in rows:
        first, last = (row.start_s - begin_s) / step_s, (row.end_s - begin_s) / step_s
        for step in range(int(first), min(steps, math.ceil(last))):
            part = min(last, step + 1) - max(first, step)
            cpu[step] += row.cpu * part
            memory[step] += row.memory * part
    return Load(
        cpu=np.clip(cpu / capacity[0], 0.0, 1.0).tolist(),
        memory=np.clip(memory / capacity[1], 0.0, 1.0).tolist(),
        step_s=step_s,
    )


def _usage(row: list[str], where: str) -> Usage:
    if len(row) < COLUMNS - 1:
        # The last column, the sampled CPU use, came with version 2 of the format.
        raise TraceError(f"{where}: {len(row)} fields, expected {COLUMNS}: cut off, or another table of the trace?")
    start, end = (_number(row[at], where, what) for at, what in ((START, "start"), (END, "end")))
    if end <= start:
        raise TraceError(f"{where}: ends at {end:g} us, which is not after its start at {start:g} us")
    if not row[MACHINE]:
        raise TraceError(f"{where}: machine ID is empty, expected a number: leave the row out")
    cpu, memory = (_number(row[at], where, what) for at, what in ((CPU, "CPU rate"), (MEMORY, "memory use")))
    return Usage(start_s=start / MICROSECONDS, end_s=end / MICROSECONDS, machine=row[MACHINE], cpu=cpu, memory=memory)


def _number(text: str, where: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise TraceError(f"{where}: {what} is {text!r}, expected a number: leave the row out or repair it") from None
    if not 0 <= value < math.inf:
        raise TraceError(f"{where}: {what} is {text!r}, expected 0 or more: leave the row out or repair it")
    return value
