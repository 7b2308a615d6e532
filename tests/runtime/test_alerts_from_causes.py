"""Each condition is brought about: the alert fires with its text and its place, and resolves when the cause is gone."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from controlplane.alerts.delivery import deliver_due
from controlplane.alerts.kinds import KINDS
from controlplane.alerts.models import Alert, Delivery
from controlplane.alerts.services import delivery_resend, target_test
from controlplane.alerts.shares import WINDOW_S
from controlplane.jobs.models import Decision, Job
from controlplane.jobs.projections import Answer, apply_answers
from controlplane.protocol.spec import spec_document
from controlplane.runtime import alerting, log, names
from controlplane.runtime.redis import Client
from tests.alerts.receiver import Receiver, listening
from tests.alerts.rows import saved_rule, webhook
from tests.core.attached import Attached
from tests.runtime.recovery.support import copy_all
from tests.runtime.support import greeted, report, submit

pytestmark = pytest.mark.django_db(transaction=True)

KEPT_S = 10.0
"""``clear_s`` of the rules: how long a cause must be gone."""


@dataclass(kw_only=True)
class World:
    """A control plane with one live job, whose engine receives scripted events, and a clock that the test advances."""

    client: Client
    receiver: Receiver
    told: Attached = field(default_factory=Attached)
    now: datetime = field(default_factory=timezone.now)
    job: int = 0
    stored: int = 0

    def begin(self) -> None:
        """The job is there, with what its engine has decided so far."""
        row = Job.objects.create(
            name="nightly",
            spec=spec_document(self.told.spec),
            submitted_by=User.objects.create_user("ada"),
            launch=self.told.spec.launch,
        )
        self.job = row.pk
        submit(self.client, self.job, self.told.spec)
        greeted(self.job, 0, 1)
        self.told.now_ms = int(self.now.timestamp() * 1000)

    def store(self) -> None:
        """Write what the engine has decided since, as ingest does."""
        commands = self.told.commands[self.stored :]
        apply_answers(self.job, [Answer(incarnation=0, sequence=self.stored, commands=commands)])
        self.stored += len(commands)

    def passes(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.told.now_ms = int(self.now.timestamp() * 1000)

    def alert(self) -> Alert | None:
        """The only alert, after an evaluation now."""
        alerting.evaluate(self.client, self.now)
        return Alert.objects.get() if Alert.objects.exists() else None

    def reports(self, first: int, *, waiting_s: float) -> None:
        """Eight iterations of two workers, in the log and in the database."""
        times = {"compute_s": 0.1, "push_s": 0.0, "pull_s": 0.0, "coordination_s": 0.0, "waiting_s": waiting_s}
        for iteration in range(first, first + 8):
            for rank in (0, 1):
                said = report(iteration + 2, rank=rank, instance=f"w{rank}.0.1", **times)
                log.append_event(self.job, said, client=self.client)
        copy_all(self.client)


Act = Callable[[World], None]


@pytest.fixture
def world(client: Client, enqueued: list[int]) -> Iterator[World]:
    with listening() as receiver:
        world = World(client=client, receiver=receiver)
        world.begin()
        yield world
    client.config_set("maxmemory", 0)


def runs(world: World) -> None:
    world.told.running()
    world.store()


def is_submitted(world: World) -> None:
    world.told.submitted()
    world.told.comes(0)
    world.store()
    copy_all(world.client)


def others_are_slow(world: World) -> None:
    world.reports(0, waiting_s=0.0)
    world.alert()
    world.passes(WINDOW_S)
    world.reports(8, waiting_s=0.3)


def all_are_alike(world: World) -> None:
    world.passes(WINDOW_S)
    world.reports(16, waiting_s=0.0)


def nobody_copies(world: World) -> None:
    """Nobody has copied for a minute: the log and its entries are a minute older."""
    key, (seconds, _) = names.events(world.job), world.client.time()
    entries = world.client.xrange(key)
    world.client.delete(key)
    for number, (_, entry) in enumerate(entries):
        world.client.xadd(key, entry, id=f"{(int(seconds) - 60) * 1000 + number}-0")


def ingest_copies(world: World) -> None:
    copy_all(world.client)


def redis_fills(world: World) -> None:
    world.client.config_set("maxmemory", int(world.client.info("memory")["used_memory"] * 1.2))


def redis_has_room(world: World) -> None:
    world.client.config_set("maxmemory", 0)


def a_target_refuses(world: World) -> None:
    world.receiver.answer(410)
    target_test(row=webhook(world.receiver.url), actor="ada", base_url="http://paceline")
    deliver_due(timezone.now)


def the_target_accepts(world: World) -> None:
    assert delivery_resend(row=Delivery.objects.get(), actor="ada")
    deliver_due(timezone.now)


def it_ends(world: World) -> None:
    world.told.iterate_at(3, 1000.0, 1000.0)
    for rank in (0, 1):
        world.told.done(rank, 2)
    world.told.launcher_ends(0)
    world.store()


def it_fails(world: World) -> None:
    world.told.launcher_ends(3)
    world.store()


def a_loss_is_nan(world: World) -> None:
    world.told.report(0, 0, spoilt="nan", loss=0.0, samples=0)
    world.store()


def the_loss_is_a_number(world: World) -> None:
    world.told.report(0, 1)
    world.store()


def the_other_rank_does_not_come(world: World) -> None:
    world.alert()
    world.passes(130)


def the_other_rank_comes(world: World) -> None:
    world.told.comes(1)
    world.store()


@dataclass(frozen=True, kw_only=True)
class Case:
    """A kind of rule, what makes its condition true, and what ends it; an event ends by itself."""

    kind: str
    begin: Act = runs
    cause: Act
    cure: Act | None = None
    text: str
    """A pattern of the summary, in which ``JOB`` is the job's number."""
    path: str
    """The page; ``LAST`` is the job's last decision."""


TIMELINE = "/jobs/JOB/?tab=timeline&first-timeline=0"
DECISION = "/jobs/JOB/?tab=decisions&decisions=all&before=NEXT#decision-0-LAST"

CASES = [
    Case(
        kind="job-stalled",
        begin=is_submitted,
        cause=the_other_rank_does_not_come,
        cure=the_other_rank_comes,
        text=r"job JOB \(nightly\) is stalled while starting: it has been starting for 130 s,"
        " awaiting ranks w1; 1 of 2 are connected",
        path=DECISION,
    ),
    Case(
        kind="waiting",
        cause=others_are_slow,
        cure=all_are_alike,
        text=r"workers of job JOB \(nightly\) wait for other workers 75% of the time, above 30%",
        path=TIMELINE,
    ),
    Case(
        kind="loss-not-finite",
        cause=a_loss_is_nan,
        cure=the_loss_is_a_number,
        text=r"job JOB \(nightly\): the loss of w0 in iteration 0 is nan: the script continues",
        path=DECISION,
    ),
    Case(
        kind="job-done",
        cause=it_ends,
        text=r"job JOB \(nightly\) succeeded after \d+ iterations",
        path=DECISION,
    ),
    Case(
        kind="job-failed",
        cause=it_fails,
        text=r"job JOB \(nightly\) failed after 0 iterations: its launcher ended with status 3",
        path=DECISION,
    ),
    Case(
        kind="ingest-behind",
        cause=nobody_copies,
        cure=ingest_copies,
        text=r"History is \d+ s behind: pages show job JOB as of .* Training continues, and no data is lost\.",
        path="/system/",
    ),
    Case(
        kind="redis-filling",
        cause=redis_fills,
        cure=redis_has_room,
        text=r"Redis uses \d+ of \d+ MB, its limit \(maxmemory\)\. .*",
        path="/system/",
    ),
    Case(
        kind="delivery-failed",
        cause=a_target_refuses,
        cure=the_target_accepts,
        text="alerts cannot be delivered to hook: status 410",
        path="/alerts/#deliveries",
    ),
]

ELSEWHERE = {
    "checkpoint-failed": "test_alerting",
    "disk-filling": "alerts.test_step",
    "straggler": "test_alerting",
    "worker-lost": "integration.test_alerts, with a process that is killed",
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kind)
def test_an_alert_follows_its_cause(world: World, case: Case) -> None:
    saved_rule(case.kind, clear_s=KEPT_S)
    world.now = timezone.now()
    world.passes(0)
    case.begin(world)
    assert world.alert() is None
    case.cause(world)
    fired = world.alert()
    assert fired is not None
    assert fired.stage == "firing"
    assert re.fullmatch(case.text.replace("JOB", str(world.job)), fired.summary), fired.summary
    last = Decision.objects.order_by("-sequence").values_list("sequence", flat=True)[0]
    path = case.path.replace("JOB", str(world.job)).replace("NEXT", str(last + 1)).replace("LAST", str(last))
    assert fired.path == path
    for _ in range(2):
        world.passes(KEPT_S + 1)
        still = world.alert()
        assert still is not None
        assert still.stage == ("firing" if case.cure else "resolved")
    if case.cure is not None:
        case.cure(world)
        world.alert()
        world.passes(KEPT_S + 1)
    over = world.alert()
    assert over is not None
    assert (over.stage, over.resolved_at is not None) == ("resolved", True)


def test_each_kind_is_brought_about_here_or_elsewhere() -> None:
    assert sorted([*(case.kind for case in CASES), *ELSEWHERE]) == sorted(KINDS)
