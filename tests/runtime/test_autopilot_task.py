"""What an autopilot asks for is kept, simulated from the database one at a time, and answered by an event."""

import json
from typing import Any

import pytest

from controlplane.core.commands import PlayAlternatives, ReleaseSlots
from controlplane.core.events import AlternativesPlayed, Event
from controlplane.policies.autopilot.alternatives import alternatives
from controlplane.protocol.autopilot import Autopilot
from controlplane.protocol.spec import Synchronization
from controlplane.runtime import autopilot, log
from controlplane.runtime.redis import Client
from controlplane.simulator.cluster import Cluster
from controlplane.simulator.control import Recording
from controlplane.simulator.disturbances import Wavering
from tests.runtime.test_replay_and_whatif import run, stored
from tests.simulator.worlds import spec, world

pytestmark = pytest.mark.django_db


def question(look: int = 1) -> PlayAlternatives:
    return PlayAlternatives(
        cause="1-0",
        reason="so",
        look=look,
        present="uniform, bsp",
        alternatives=alternatives(spec(), Autopilot()),
        since=0,
    )


def test_the_newest_question_of_a_job_is_answered_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    appended: list[tuple[int, Event]] = []
    monkeypatch.setattr(log, "append_event", lambda job, event: appended.append((job, event)))
    autopilot.request_plays(7, [ReleaseSlots(cause="1-0", reason="over"), question()])
    autopilot.request_plays(7, [question(look=2)])

    def play(job: int, asked: str) -> AlternativesPlayed:
        return AlternativesPlayed(look=autopilot._decoder.decode(autopilot.b64decode(asked)).look)

    assert autopilot.play_one(client, play) == 7
    assert autopilot.play_one(client, play) is None
    assert appended == [(7, AlternativesPlayed(look=2))]


def test_the_job_that_has_waited_longest_is_answered_first_however_often_others_ask(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(autopilot.time, "time", lambda: now[0])
    monkeypatch.setattr(log, "append_event", lambda job, event: None)
    answered: list[int | None] = []
    for job in (9, 2, 5):
        now[0] += 1.0
        autopilot.request_plays(job, [question()])
    for _ in range(4):
        answered.append(autopilot.play_one(client, lambda job, asked: AlternativesPlayed(look=1)))
        now[0] += 1.0
        autopilot.request_plays(2, [question()])
    assert answered == [9, 2, 5, 2]


def test_a_question_of_an_earlier_release_is_answered_first(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "append_event", lambda job, event: None)
    autopilot.request_plays(3, [question()])
    client.hset("autopilot:asked", "8", client.hget("autopilot:asked", "3"))
    assert autopilot.play_one(client, lambda job, asked: AlternativesPlayed(look=1)) == 8


def test_a_job_that_is_over_by_then_is_left_alone(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(job: int, event: Event) -> None:
        raise log.LogClosed(f"job {job}: is over")

    monkeypatch.setattr(log, "append_event", closed)
    autopilot.request_plays(7, [question()])
    assert autopilot.play_one(client, lambda job, asked: AlternativesPlayed(look=1)) == 7


def test_the_answer_is_simulated_from_what_the_database_has(client: Client) -> None:
    recording = Recording(keep=True)
    Cluster(world(wavering=Wavering(noise=0.1)), Synchronization(), seed=3, recording=recording).run()
    job = stored(recording, Cluster(world(wavering=Wavering(noise=0.1)), Synchronization(), seed=3))
    autopilot.request_plays(job.pk, [question()])
    answers: list[Any] = []

    def play(pk: int, asked: str) -> AlternativesPlayed:
        answers.append(json.loads(run("whatif", pk, "--request", asked)))
        return AlternativesPlayed(look=1)

    autopilot.play_one(client, play)
    (answer,) = answers
    assert answer["look"] == 1
    saved = {row["name"]: row["saved"] for row in answer["played"]}
    assert saved["lb-bsp-cpu with ema, bsp"] > 0.4
    assert answer["error"] < 0.2
