"""No loop over jobs is broken by one of them: the others have their turns, and the failure is logged and shown."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DataError
from django.utils import timezone

from controlplane.core.states import JobState
from controlplane.fleet.models import Agent, Reservation
from controlplane.jobs.models import Job, Process
from controlplane.protocol.messages import ProcessName
from controlplane.protocol.spec import spec_document
from controlplane.runtime import (
    dead_letters,
    downtime,
    draining,
    health,
    ingest,
    loglines,
    names,
    pruning,
    queue,
    reaper,
    redis_identity,
    scheduler,
    tasks,
)
from controlplane.runtime.dead_letters import job_warnings
from controlplane.runtime.job_failures import SHOWN_S, failed_steps, isolated_step
from controlplane.runtime.redis import Client
from controlplane.scheduling.queueing import Outcome
from tests.runtime.support import SPEC, submit
from tests.runtime.test_ingest import new_ingest

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).parents[2] / "controlplane"
PURE = ("core", "policies", "protocol", "simulator")
"""Packages that know one job at most."""

OVER_JOBS = {"job", "jobs", "job_id", "copied", "process", "number", "verdict", "tenant"}
"""What loops over jobs of ``runtime`` call what they go over."""

OVER_JOBS_ELSEWHERE = {"job", "jobs", "job_id"}

CONVERSIONS = {"int", "str", "float", "len"}
"""Calls in a comprehension that cannot fail for one job."""

HARMLESS = {
    "0008_reports_in_batches.store_batches": "a migration: everything in one transaction, or nothing",
    "health._streams": "asks Redis of all in one go, and takes errors for answers",
    "freshness.copying": "asks Redis of all in one go",
    "ingest_health.history": "asks Redis of all in one go",
    "folds.step": "takes one job's piece: ingest._fold gives it its turn",
    "ingest._read": "lists places to read from",
    "broadcaster.take": "notes the states that a tick names",
    "ingest._publish": "one tick names all jobs that moved",
    "dead_letters._store_dead_commands": "goes over the commands of one job",
    "conditions._stalled": "looks at numbers that are read already",
    "conditions._waiting": "looks at numbers that are read already",
    "conditions._not_finite": "looks at numbers that are read already",
    "conditions._ended": "looks at numbers that are read already",
    "conditions.condition": "looks at numbers that are read already",
    "jobs._buckets": "sorts rows of numbers",
    "plane.describe_redis": "writes numbers that are read already",
    "submit._follow": "watches one job",
    "selectors._holds": "counts rows of the database",
    "selectors.jobs_synchronization": "goes over jobs whose spec was read, and over decisions of this release's form",
    "waiting._holders": "sums up counted slots",
    "waiting.queue_in_order": "goes over jobs whose requests were read",
    "simulations._claim": "deletes the runs of one simulation",
    "interruption.__enter__": "takes signals over",
    "interruption.__exit__": "gives signals their handlers back",
    "present_costs.present_costs": "leaves out whom it cannot read: tests/telemetry/test_present_costs.py",
    "jobs.read_jobs": "looks at a field of a stored document",
    "jobs.describe_jobs": "gives each its turn: tests/frontend/test_unreadable_jobs.py",
    "queue.slot_requests_of": "leaves out whom it cannot read: tests/frontend/test_unreadable_jobs.py",
    "shares.advanced": "looks at numbers that are read already",
    "simulations.get_runs": "names the runs of one simulation",
    "machine_tests._check": "words a refusal",
    "job_owners.of": "looks at numbers that are read already",
    "job_owners._ask": "looks at numbers that are read already",
    "process_credentials.processes_over": "looks at numbers that are read already",
    "waiting.waiting_of": "goes over jobs whose requests were read",
    "waiting._about": "words what was counted already",
    "alert_view.read_view": "reads columns of rows, and no spec",
    "alert_view.with_shares": "looks at numbers that are read already",
    "autopilot.play_one": "asks Redis for the score of each",
    "draining.preview_of": "names whom it cannot read: tests/api/test_scheduling.py",
    "forecasts.due": "looks at columns of rows",
    "stored_specs.stored_specs": "names whom it cannot read: tests/frontend/test_unreadable_jobs.py",
}


@dataclass(frozen=True, kw_only=True)
class World:
    """Two jobs, of which the turn of the first fails."""

    client: Client
    patch: pytest.MonkeyPatch
    victim: int
    other: int
    agent: int

    @property
    def both(self) -> list[int]:
        return [self.victim, self.other]

    def rows(self, **changes: Any) -> None:
        Job.objects.filter(pk__in=self.both).update(**changes)

    def met(self) -> ingest.Ingest:
        """Ingest that copies both."""
        copier = new_ingest(self.client)
        copier._look()
        return copier


Inject = Callable[[World, Callable[[int], None]], Callable[[], object]]
"""Have the loop call ``turn`` with each job; what runs the loop."""


def of_first(turn: Callable[[int], None], result: object = None) -> Callable[..., Any]:
    """A stand-in for what a turn does; the job is its first argument."""

    def stand_in(job: int, *_: Any, **__: Any) -> object:
        turn(job)
        return result

    return stand_in


def of_second(turn: Callable[[int], None]) -> Callable[..., Any]:
    return lambda _, job, *__: turn(job)


def announce(world: World, turn: Callable[[int], None]) -> Callable[[], object]:
    world.patch.setattr(downtime.log, "append_event", of_first(turn))
    return lambda: downtime.announce("web", world.client)


def begin_logs(world: World, turn: Callable[[int], None]) -> Callable[[], object]:
    world.patch.setattr(scheduler.log, "start_log", of_first(turn))
    return scheduler.begin_logs


def plan_slots(world: World, turn: Callable[[int], None]) -> Callable[[], object]:
    whole = scheduler.slot_request_of

    def slot_request_of(job: Job) -> Any:
        turn(job.pk)
        return whole(job)

    world.patch.setattr(scheduler, "slot_request_of", slot_request_of)
    return scheduler.schedule_jobs


def give_again(world: World, turn: Callable[[int], None]) -> Callable[[], object]:
    world.patch.setattr(scheduler, "_served", lambda _: world.both)
    world.patch.setattr(scheduler, "_assign", lambda request, _: turn(request.job) or [])
    return scheduler.schedule_jobs


def give_slots(world: World, turn: Callable[[int], None]) -> Callable[[], object]:
    def starts(requests: Any, *_: Any) -> list[Any]:
        return [SimpleNamespace(outcome=Outcome.STARTS, request=request, takes=()) for request in requests]

    world.patch.setattr(scheduler, "plan_queue", starts)
    world.patch.setattr(scheduler, "_assign", lambda request, _: turn(request.job) or [])
    return scheduler.schedule_jobs


def give_back(world: World, turn: Callable[[int], None]) -> Callable[[], object]:
    held = SimpleNamespace(held_by=lambda asks: dict.fromkeys(asks, 0), offers=[])
    world.patch.setattr(scheduler, "slots_now", lambda: held)
    world.patch.setattr(scheduler, "release_slots", of_first(turn))
    return scheduler.schedule_jobs


def replace_slots(world: World, turn: Callable[[int], None]) -> Callable[[], object]:
    now = timezone.now()
    for job in world.both:
        Process.objects.create(
            job_id=job, role="worker", index=0, instance="w0", state_since=now, started_at=now, wants_slot=True
        )
    world.patch.setattr(scheduler, "_replace", lambda process, _, offers, __: (turn(process.job_id) or [], offers))
    return scheduler.replace_slots


def look_up_labels(world: World, turn: Callable[[int], None]) -> Callable[[], object]:
    run = replace_slots(world, lambda _: None)
    plan_slots(world, turn)
    return run


def drain(world: World, turn: Callable[[int], None]) -> Callable[[], object]:
    Agent.objects.filter(pk=world.agent).update(scheduling=Agent.Scheduling.DRAINING)
    for slot, job in enumerate(world.both):
        Reservation.objects.create(agent_id=world.agent, role="worker", slot=slot, job_id=job, index=0)
    whole = draining.stored_spec

    def stored_spec(job: Job) -> Any:
        turn(job.pk)
        return whole(job)

    world.patch.setattr(draining, "stored_spec", stored_spec)
    return draining.drain_machines


def end_lost(world: World, turn: Callable[[int], None]) -> Callable[[], object]:
    ran = [ProcessName(job=job, role="worker", index=0, instance="w0") for job in world.both]
    world.patch.setattr(reaper.agents, "ordered_processes", lambda *_: ran)
    world.patch.setattr(reaper, "_report_lost", lambda _, __, name: turn(name.job))
    return lambda: reaper.end_lost_processes(world.client, world.agent)


def recover(world: World, turn: Callable[[int], None]) -> Callable[[], object]:
    world.rows(state=JobState.RUNNING)
    world.patch.setattr(redis_identity, "UNRECOVERED", SimpleNamespace(run=lambda *_: [redis_identity.QUEUED_NOW] * 2))
    world.patch.setattr(queue, "enqueue", of_first(turn))
    return lambda: redis_identity._recover(world.client)


def free_slots(world: World, turn: Callable[[int], None]) -> Callable[[], object]:
    world.rows(state=JobState.FAILED)
    world.client.delete(names.LIVE_JOBS)
    for slot, job in enumerate(world.both):
        Reservation.objects.create(agent_id=world.agent, role="worker", slot=slot, job_id=job, index=0)
    world.patch.setattr(redis_identity, "release_slots", of_first(turn))
    return lambda: redis_identity._free_slots(world.client)


def queue_stranded(world: World, turn: Callable[[int], None]) -> Callable[[], object]:
    world.patch.setattr(tasks, "RESCUE", SimpleNamespace(run=lambda *_: [b"%d" % job for job in world.both]))
    world.patch.setattr(queue, "enqueue", of_first(turn))
    return tasks._queue_stranded


def prune(world: World, turn: Callable[[int], None]) -> Callable[[], object]:
    world.patch.setattr(pruning, "old_jobs", lambda _: world.both)
    world.patch.setattr(pruning, "fold", of_first(turn, ()))
    return lambda: pruning.prune(pruning.Limits(now=timezone.now()))


def measure(world: World, turn: Callable[[int], None]) -> Callable[[], object]:
    world.rows(state=JobState.RUNNING, iteration=9)
    world.patch.setattr(health, "read_columns", of_first(turn, {}))
    return health._latency


def meet(world: World, turn: Callable[[int], None]) -> Callable[[], object]:
    whole = ingest.copied_so_far

    def copied_so_far(job: int) -> Any:
        turn(job)
        return whole(job)

    world.patch.setattr(ingest, "copied_so_far", copied_so_far)
    return new_ingest(world.client).step


def copy(world: World, turn: Callable[[int], None]) -> Callable[[], object]:
    world.patch.setattr(ingest, "write_batch", of_first(turn, 0))
    world.patch.setattr(dead_letters, "write_apart", of_first(turn, (0, [])))
    return new_ingest(world.client).step


def trim(world: World, turn: Callable[[int], None]) -> Callable[[], object]:
    copier = world.met()
    copier._looked = 0.0
    world.patch.setattr(ingest, "trim", of_second(turn))
    return copier.step


def end(world: World, turn: Callable[[int], None]) -> Callable[[], object]:
    copier = world.met()
    copier._doomed = dict.fromkeys(world.both, dead_letters.DeadLetter())
    world.patch.setattr(dead_letters, "end_job", of_second(turn))
    return copier.step


def tell_numbers(world: World, turn: Callable[[int], None]) -> Callable[[], object]:
    copier = world.met()
    world.patch.setattr(ingest, "publish_numbers", of_second(turn))
    return copier.step


def fold(world: World, turn: Callable[[int], None]) -> Callable[[], object]:
    def piece(job: int) -> Iterator[int]:
        turn(job)
        yield 1

    copier = world.met()
    copier._folds._under_way = {job: piece(job) for job in world.both}
    return lambda: [copier.step() for _ in world.both]


def write_lines(world: World, turn: Callable[[int], None]) -> Callable[[], object]:
    world.client.sadd(names.LINES_JOBS, *world.both)
    world.patch.setattr(loglines.LineWriter, "_try", of_second(turn))
    return loglines.LineWriter(world.client).step


LOOPS: dict[str, tuple[str, list[Inject]]] = {
    "downtime.announce": ("announcing downtime", [announce]),
    "scheduler.begin_logs": ("beginning logs", [begin_logs]),
    "scheduler.schedule_jobs": ("slots", [plan_slots, give_again, give_slots]),
    "scheduler._served": ("giving slots back", [give_back]),
    "scheduler.replace_slots": ("slots", [replace_slots, look_up_labels]),
    "draining.drain_machines": ("draining a machine", [drain]),
    "reaper.end_lost_processes": ("ending processes of lost agents", [end_lost]),
    "redis_identity._recover": ("recovering", [recover]),
    "redis_identity._free_slots": ("giving slots back", [free_slots]),
    "tasks._queue_stranded": ("queueing", [queue_stranded]),
    "pruning.prune": ("pruning", [prune]),
    "health._latency": ("measuring latency", [measure]),
    "ingest.step": ("", [copy, end]),
    "ingest._look": ("", [meet, trim]),
    "ingest._publish_numbers": ("publishing durable numbers", [tell_numbers]),
    "ingest._fold": ("folding", [fold]),
    "loglines.step": ("writing lines", [write_lines]),
}
"""By function: what an operator is told that its turns are, and how each of its loops is made to fail for one job."""

CASES = [(words, inject) for words, injects in LOOPS.values() for inject in injects]


@pytest.fixture
def world(client: Client, enqueued: list[int], monkeypatch: pytest.MonkeyPatch) -> World:
    user = User.objects.create(username="ann")
    rows = [Job.objects.create(name="a", spec=spec_document(SPEC), submitted_by=user).pk for _ in range(2)]
    for job in rows:
        submit(client, job)
    agent = Agent.objects.create(name="m1", credential_digest="d").pk
    return World(client=client, patch=monkeypatch, victim=rows[0], other=rows[1], agent=agent)


@pytest.mark.parametrize(("words", "inject"), CASES, ids=[inject.__name__ for _, inject in CASES])
def test_one_jobs_failure_is_logged_and_shown_and_the_others_have_their_turns(
    world: World, words: str, inject: Inject, caplog: pytest.LogCaptureFixture
) -> None:
    turns: list[int] = []

    def turn(job: int) -> None:
        turns.append(job)
        if job == world.victim:
            raise DataError("a row that nobody can read")

    run = inject(world, turn)
    run()
    assert set(world.both) <= set(turns)
    told = job_warnings(world.client)
    assert f"job {world.victim} is skipped in " in told
    assert words in told
    assert "DataError: a row that nobody can read" in told
    assert f"job {world.other} " not in told
    assert world.victim in [record.msg.get("job") for record in caplog.records if isinstance(record.msg, dict)]


def test_every_loop_over_jobs_is_listed_here() -> None:
    found = {
        f"{path.stem}.{function.name}"
        for path in ROOT.rglob("*.py")
        if path.relative_to(ROOT).parts[0] not in PURE
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and _goes_over(function, OVER_JOBS if "runtime" in path.parts else OVER_JOBS_ELSEWHERE)
    }
    unlisted = sorted(found - LOOPS.keys() - HARMLESS.keys())
    assert unlisted == [], "give each job its turn by `isolated_step`, and list the loop"
    assert HARMLESS.keys() - found == set(), "no such loop any more"


def _goes_over(function: ast.AST, jobs: set[str]) -> bool:
    """Whether it has a loop over ``jobs``, or a comprehension that calls something with one of them."""
    nodes = list(ast.walk(function))
    if any(isinstance(node, ast.For | ast.AsyncFor) and _names(node.target) & jobs for node in nodes):
        return True
    found = [node for node in nodes if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp)]
    return any(_calls(node, set().union(*(_names(part.target) for part in node.generators)) & jobs) for node in found)


def _calls(node: ast.AST, jobs: set[str]) -> bool:
    """Whether something other than a conversion is called with one of ``jobs``."""
    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call) and _names(each) & jobs]
    return any(not (isinstance(call.func, ast.Name) and call.func.id in CONVERSIONS) for call in calls)


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def test_a_turn_that_goes_well_again_is_shown_no_more(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for fails in (True, False):
        with isolated_step("pruning", 7, client):
            if fails:
                raise ValueError("no")
        assert bool(failed_steps(client)) is fails


def test_a_turn_that_is_never_taken_again_is_forgotten(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with isolated_step("pruning", 7, client):
        raise ValueError("no")
    monkeypatch.setattr("controlplane.runtime.job_failures.SHOWN_S", -SHOWN_S)
    assert failed_steps(client) == ""


def test_a_database_that_is_away_ends_the_loop_as_before(client: Client) -> None:
    from django.db import OperationalError

    with pytest.raises(OperationalError), isolated_step("pruning", 7, client):
        raise OperationalError("server closed the connection")
    assert failed_steps(client) == ""
