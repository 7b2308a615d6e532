"""What a job ran on is kept with it."""

import pytest

from controlplane.core.commands import MoveJob, MoveProcess
from controlplane.core.states import JobState, ProcessState
from controlplane.fleet.services import agent_connected
from controlplane.jobs.environment import control_plane
from controlplane.jobs.models import Process
from controlplane.jobs.projections import Answer, apply_answers
from controlplane.protocol import RELEASE
from controlplane.protocol.codec import encode, from_agent
from controlplane.protocol.messages import AgentHello, Environment
from tests.frontend.factories import make_job
from tests.support.rows import hello, online_agent

pytestmark = pytest.mark.django_db

CAUSE = "1790000000000-0"
SAID = Environment(python="3.13.1", torch="2.9.0", platform="Linux 6.8 x86_64", cpu="Fast " * 100)


def moved(agent: int, state: ProcessState, sequence: int = 0) -> Answer:
    process = MoveProcess(
        cause=CAUSE, reason="", role="worker", index=0, instance="w0.0.1", agent=agent, slot=0, state=state
    )
    return Answer(incarnation=1, sequence=sequence, commands=[process])


def test_a_process_keeps_what_its_machine_reported_at_its_start() -> None:
    job, agent = make_job(), online_agent("box", environment=SAID)
    apply_answers(job.pk, [moved(agent.pk, ProcessState.ORDERED)])
    agent_connected(agent.pk, hello("box", environment=Environment(python="3.14.0")))
    apply_answers(job.pk, [moved(agent.pk, ProcessState.READY, 1)])
    agent.delete()
    kept = Process.objects.get(job=job)
    assert (kept.state, kept.agent) == (ProcessState.READY, None)
    assert kept.environment == {
        "machine": "box",
        "paceline": "0.1.0",
        "python": "3.13.1",
        "torch": "2.9.0",
        "platform": "Linux 6.8 x86_64",
        "cpu": ("Fast " * 100)[:200],
    }


def test_an_older_agent_sends_nothing_and_is_taken() -> None:
    older = encode(hello("box", environment=SAID)).replace(b"environment", b"left-unread")
    told = from_agent.decode(older)
    assert isinstance(told, AgentHello)
    assert told.environment == Environment()


def test_a_job_keeps_what_the_control_plane_ran_when_it_began() -> None:
    job = make_job(state=JobState.STARTING, started_at=None)
    start = MoveJob(cause=CAUSE, reason="all are here", state=JobState.RUNNING)
    apply_answers(job.pk, [Answer(incarnation=1, sequence=0, commands=[start])])
    job.refresh_from_db()
    assert job.environment == control_plane()
    assert job.environment["paceline"] == RELEASE
