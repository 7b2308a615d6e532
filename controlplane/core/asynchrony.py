"""Asynchronous jobs: each worker is let go by itself, with samples of its own, as its barrier allows.

Everything here costs the same per report at any number of workers, but for what happens once per round of as many
reports as there are workers.
"""

from controlplane.core import flags, handout, leases, placing, releases, standing
from controlplane.core.choices import Release
from controlplane.core.commands import HoldWorker
from controlplane.core.gates import Arrival, Members, Passage
from controlplane.core.handling import Handling, Policies
from controlplane.core.records import Worker
from controlplane.core.state import Job, Round
from controlplane.core.states import JOB_OVER, ProcessState
from controlplane.protocol.messages import IterationReport

SMOOTHING = 0.2
"""Weight of the newest iteration in a worker's pace."""


def begin(handling: Handling) -> None:
    """A generation begins, or goes on after a hold: leave for everybody whom the barrier lets go. Orders follow."""
    job, policies = handling.job, handling.chosen
    if policies.gate is None or not _lets_go(job):
        return
    going = [job.workers[rank] for rank in job.generation.roster if _goes_on(job.workers[rank])]
    members = Members(
        done={worker.index: standing.stand(worker) for worker in going},
        watermark={worker.index: worker.watermark for worker in going},
        seed=handling.spec.seed,
        at_ms=handling.now_ms,
    )
    policies.barrier_state, passage = policies.gate.start(members, policies.barrier_state)
    for rank, release in passage.releases.items():
        _extend(handling, job.workers[rank], release)
    _say_who_waits(handling, passage)
    job.updates.passed |= _let_in(handling, passage)


def on_report(handling: Handling, worker: Worker, report: IterationReport) -> None:
    """A worker stands at a boundary, or has leave to go on: what follows for it and for those who waited for it."""
    job, policies = handling.job, handling.chosen
    worker.pace_s += (report.iteration_s - worker.pace_s) * (SMOOTHING if worker.pace_s else 1.0)
    leases.use_up(worker)
    if policies.gate is None or not _lets_go(job):
        return
    arrival = Arrival(
        rank=worker.index,
        done=worker.done,
        watermark=worker.watermark,
        busy_s=report.busy_s,
        at_ms=handling.now_ms,
    )
    policies.barrier_state, passage = policies.gate.arrive(arrival, policies.barrier_state)
    _let_pass(handling, passage)
    _count_round(handling)


def next_look_ms(job: Job, policies: Policies) -> int | None:
    """When the barrier wants to look again at those who wait, in milliseconds of the log's clock; None: never."""
    if policies.gate is None or policies.barrier_state is None or job.state in JOB_OVER or not _lets_go(job):
        return None
    return policies.gate.recheck_at_ms(policies.barrier_state)


def on_time_passed(handling: Handling) -> None:
    """Look again at those who wait, where the barrier asked for it."""
    policies = handling.chosen
    due_ms = next_look_ms(handling.job, policies)
    if policies.gate is not None and due_ms is not None and due_ms <= handling.now_ms:
        policies.barrier_state, passage = policies.gate.recheck(handling.now_ms, policies.barrier_state)
        _let_pass(handling, passage)


def _let_pass(handling: Handling, passage: Passage) -> None:
    job = handling.job
    for rank, release in passage.releases.items():
        worker = job.workers[rank]
        if _goes_on(worker) and _extend(handling, worker, release):
            releases.issue(handling, worker, release.reason)
    _say_who_waits(handling, passage)
    if passed := _let_in(handling, passage):
        # As one decision to all servers, so that each applies the same sum.
        job.updates.passed |= passed
        job.sequence += 1
        named = ", ".join(f"w{rank}" for rank in sorted(passed))
        for server in job.live_servers:
            releases.issue_server_orders(handling, server, f"the updates of {named} are let in as one sum")
    if leases.left_over(job) == 0:
        asked = f"samples for {handling.spec.stop.iterations} iterations were asked for and handed out"
        releases.stop_each(handling, asked, soon=False)


def _extend(handling: Handling, worker: Worker, release: Release) -> bool:
    """More leave, unless half of what there could be is still unused; whether it was given."""
    done = standing.stand(worker)
    ahead = 1 if handling.chosen.partitioned is not None else releases.lead_of(worker.pace_s)
    watermark = min(release.watermark, done + ahead)
    watermark = leases.reach(handling.job, worker, watermark)
    if watermark <= worker.watermark or worker.watermark - done > (watermark - done) // 2:
        return False
    granted = leases.grant(handling.job, worker, watermark)
    handout.hand_out(handling, [worker.index])
    return granted


def _say_who_waits(handling: Handling, passage: Passage) -> None:
    for rank, wait in passage.waits.items():
        iteration = handling.job.workers[rank].done + 1
        handling.give(HoldWorker, wait.reason, rank=rank, iteration=iteration, waits_for=wait.waits_for)


def _let_in(handling: Handling, passage: Passage) -> dict[int, int]:
    """PSP by the letter: up to which iteration the updates of those who pass now are let in."""
    job, gate = handling.job, handling.chosen.gate
    if gate is None or not gate.holds_updates:
        return {}
    return {rank: job.workers[rank].done for rank in passage.releases if job.workers[rank].done >= 0}


def _count_round(handling: Handling) -> None:
    """Shares and flags are looked at once per round, with the latest that each worker said in it."""
    job = handling.job
    job.round.reports += 1
    if job.round.reports < len(job.generation.roster):
        return
    done, job.round = job.round, Round(completed=job.round.completed, behind=job.round.behind)
    observations = [done.recent[rank] for rank in sorted(done.recent)]
    paces = [(job.generation.shares[rank], job.workers[rank].pace_s) for rank in job.generation.roster]
    job.pace.speed = sum(share / pace_s for share, pace_s in paces if pace_s > 0)
    releases.decide_shares(handling, observations)
    handout.rebalance(handling, observations)
    flags.look(handling, observations, done.recent_transfers)
    placing.review(handling, done.recent_transfers)


def _lets_go(job: Job) -> bool:
    """Whether anybody is let go at all: nobody is to stand, and samples are left to hand out."""
    return job.hold.sequence is None and job.end.stop_at is None


def _goes_on(worker: Worker) -> bool:
    return worker.state in (ProcessState.READY, ProcessState.UNREACHABLE)
