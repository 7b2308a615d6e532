"""Determines why submitted jobs do not start: which jobs hold the slots that they need, and which are ahead."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from controlplane.core.states import JobState
from controlplane.fleet.selectors import Capacity, SlotsNow, capacity, closed_machines, offer_without_slots, slots_now
from controlplane.jobs.blockers import Blocker, Waiting
from controlplane.jobs.models import Job
from controlplane.jobs.queue import queued_jobs, slot_requests_of
from controlplane.jobs.shares import plan_queue, subject_name
from controlplane.jobs.viewing import visible
from controlplane.scheduling.queueing import Offer, Outcome, SlotRequest, Verdict


@dataclass(slots=True)
class Queue:
    """A snapshot of all waiting jobs, read once for several of them."""

    now: datetime
    extra: SlotRequest | None = None
    """The entry of a job that is not submitted yet."""
    _slots: SlotsNow = field(init=False)
    _closed: list[Offer] | None = None
    _verdicts: dict[int, Verdict] = field(init=False)
    _served: dict[int, SlotRequest] = field(init=False)
    _names: dict[int, str] = field(init=False)

    def __post_init__(self) -> None:
        self._slots = slots_now()
        jobs = list(queued_jobs())
        requests = slot_requests_of(jobs)
        held = self._slots.held_by(requests)
        self._served = {
            job: request for job, request in requests.items() if held[job] >= request.least + request.servers
        }
        waiting = [request for job, request in requests.items() if job not in self._served]
        waiting += [self.extra] if self.extra else []
        planned = plan_queue(waiting, self._slots, self.now.timestamp())
        self._verdicts = {verdict.request.job: verdict for verdict in planned}
        holding = {hold.job for hold in self._slots.holds} - set(requests)
        shown = visible(Job.objects.filter(pk__in=holding | set(requests)))
        self._names = dict(shown.values_list("pk", "name"))

    @property
    def order(self) -> list[int]:
        """Waiting jobs in the order of the queue, starting with jobs that have their slots already."""
        return [*self._served, *self._verdicts]

    def waiting(self, job: int) -> Waiting | None:
        """Why this job does not start; None if it is not in the queue."""
        verdict = self._verdicts.get(job)
        if verdict is None:
            request = self._served.get(job)
            return (
                None if request is None else self._about(Verdict(request=request, outcome=Outcome.STARTS, machines=()))
            )
        return self._about(verdict)

    def _about(self, verdict: Verdict) -> Waiting:
        request = verdict.request
        there = capacity(request.labels, self._slots, team=request.team, script=request.script)
        return Waiting(
            request=verdict.request,
            outcome=verdict.outcome,
            capacity=there,
            machines=tuple(offer for offer in self._slots.offers if offer.team in (0, verdict.request.team)),
            keeps=verdict.keeps,
            holders=tuple(self._holders(verdict, there)) if verdict.outcome is Outcome.WAITS else (),
            ahead=tuple(self._ahead(job) for job in verdict.ahead),
            bound=subject_name(verdict.bound) if verdict.bound else "",
            closed=self._closed_to(verdict.request) if verdict.outcome is Outcome.NEVER else (),
        )

    def _closed_to(self, request: SlotRequest) -> tuple[str, ...]:
        """Suitable machines with the job's labels that are cordoned or drained."""
        if self._closed is None:
            self._closed = [offer_without_slots(agent) for agent in closed_machines()]
        return tuple(offer.name for offer in self._closed if request.fits(offer))

    def _holders(self, verdict: Verdict, there: Capacity) -> Iterator[Blocker]:
        """Jobs that hold slots of the kinds that are scarce, the largest holder first."""
        lacks_workers, lacks_servers = (
            there.free_workers < verdict.request.least,
            there.free_servers < verdict.request.servers,
        )
        sums: dict[int, tuple[int, int]] = {}
        for hold in self._slots.holds:
            if hold.machine in verdict.machines:
                workers, servers = sums.get(hold.job, (0, 0))
                sums[hold.job] = workers + hold.workers, servers + hold.servers
        for job, (workers, servers) in sorted(sums.items(), key=lambda each: (-sum(each[1]), each[0])):
            if (lacks_workers and workers) or (lacks_servers and servers):
                name = self._names.get(job, "")
                yield Blocker(job=job, name=name, relation="holds", workers=workers, servers=servers)

    def _ahead(self, job: int) -> Blocker:
        verdict = self._verdicts[job]
        request = verdict.request
        return Blocker(
            job=job,
            name=self._names.get(job, ""),
            relation="ahead",
            workers=request.least,
            servers=request.servers,
            since=datetime.fromtimestamp(request.since, UTC),
            priority=request.priority,
            starts=verdict.outcome is Outcome.STARTS,
            kept=verdict.keeps,
        )


def waiting_of(jobs: Iterable[Job], now: datetime) -> Mapping[int, Waiting]:
    """Why each of these jobs does not start, by job; jobs that have started or ended are omitted."""
    queued = [job.pk for job in jobs if job.state == JobState.SUBMITTED]
    if not queued:
        return {}
    queue = Queue(now)
    found = {job: queue.waiting(job) for job in queued}
    return {job: waiting for job, waiting in found.items() if waiting is not None}


def queue_in_order(now: datetime) -> list[Job]:
    """Waiting jobs that the current user may see, in the order in which they get slots, each with its ``waiting``."""
    queue = Queue(now)
    jobs = visible(queued_jobs().select_related("team", "submitted_by")).in_bulk(queue.order)
    found = [jobs[number] for number in queue.order if number in jobs]
    for job in found:
        job.waiting = queue.waiting(job.pk)  # type: ignore[attr-defined]
    return found
