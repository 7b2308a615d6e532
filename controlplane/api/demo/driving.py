"""Drives the two runs over REST and records their measurements."""

from controlplane.api.demo.display import Display, numbers
from controlplane.api.demo.record import METRICS, Record
from controlplane.api.demo.scenarios import Run, Scenario
from controlplane.api.demo.verdict import has_every_report
from controlplane.core.states import JobState
from controlplane.runtime.embedded.errors import CannotStart
from controlplane.runtime.embedded.supervisor import Supervisor
from paceline import Client
from paceline.client.records import MOST_POINTS

LOOK_S = 0.4
OVERLAP = 3
"""Iterations requested again at each poll: workers report them at different times."""

SETTLE_S = 20.0
"""How long history may take to catch up with a finished job."""


def drive(
    client: Client, run: Run, scenario: Scenario, iterations: int, display: Display, supervisor: Supervisor
) -> Record:
    """Submit the run and follow it to its end.

    Raises:
        CannotStart: if it does not succeed, or a service ends.
        Interrupted: if the user interrupts it.
    """
    job = client.submit(scenario.spec(run, iterations=iterations))
    record = Record()
    display.begin(run.label, iterations)
    while not job.is_over:
        supervisor.check()
        supervisor.interruption.pause(LOOK_S)
        job = client.job(job.id)
        _measure(client, job.id, record, since=max(0, len(record.iterations) - OVERLAP))
        display.show(job.iteration, numbers(job, record))
    if job.state != JobState.SUCCEEDED:
        raise CannotStart(f"The job {job.name!r} ended {job.state}: {job.reason or 'no reason given'}.")
    supervisor.wait_until(
        lambda: _is_complete(client, job.id, record, run, iterations, len(scenario.speeds)),
        what=f"The history of {run.label}",
        seconds=SETTLE_S,
    )
    display.show(iterations, numbers(job, record), last=True)
    return record


def _measure(client: Client, job: int, record: Record, *, since: int) -> None:
    record.absorb(client.metrics(job, METRICS, since=since, points=MOST_POINTS).series)


def _is_complete(client: Client, job: int, record: Record, run: Run, iterations: int, workers: int) -> bool:
    """Whether all reports and the last evaluation have arrived; if their number is unknown, whether none came since."""
    before = record.updates()
    _measure(client, job, record, since=0)
    if has_every_report(run):
        return record.updates() >= iterations * workers and iterations in record.accuracy
    return record.updates() == before


def agent_is_online(client: Client, name: str) -> bool:
    """Whether the machine of that name is online."""
    return any(agent.name == name and agent.state == "online" for agent in client.agents())
