"""The laws of the queue: who starts, who waits, and that no one waits for ever."""

from hypothesis import given
from hypothesis import strategies as st

from controlplane.scheduling.queueing import PATIENCE_S, Offer, Outcome, SlotRequest, Take, Verdict, place, plan

NOW = 10_000.0
LABELS = st.sampled_from([{}, {"gpu": "a100"}, {"zone": "a"}, {"gpu": "a100", "zone": "a"}])


def offer(machine: int = 1, workers: int = 4, servers: int = 4, **more: object) -> Offer:
    fields = {"free_workers": workers, "free_servers": servers, "labels": {}} | more
    return Offer(machine=machine, workers=workers, servers=servers, **fields)


def ask(job: int, workers: int = 1, servers: int = 0, **more: object) -> SlotRequest:
    fields = {"least": workers, "labels": {}, "since": NOW} | more
    return SlotRequest(job=job, workers=workers, servers=servers, **fields)


@st.composite
def asks(draw: st.DrawFn, job: int) -> SlotRequest:
    workers = draw(st.integers(1, 8))
    return SlotRequest(
        job=job,
        workers=workers,
        least=draw(st.integers(1, workers)),
        servers=draw(st.integers(0, 3)),
        labels=draw(LABELS),
        priority=draw(st.integers(-3, 3)),
        since=NOW - draw(st.sampled_from([0.0, PATIENCE_S - 1, PATIENCE_S, 10 * PATIENCE_S])),
    )


@st.composite
def offers(draw: st.DrawFn, machine: int) -> Offer:
    workers, servers = draw(st.integers(0, 6)), draw(st.integers(0, 3))
    return Offer(
        machine=machine,
        workers=workers,
        servers=servers,
        free_workers=draw(st.integers(0, workers)),
        free_servers=draw(st.integers(0, servers)),
        labels=draw(LABELS),
    )


QUEUES = st.integers(0, 8).flatmap(lambda n: st.tuples(*[asks(job) for job in range(1, n + 1)]))
FLEETS = st.integers(0, 4).flatmap(lambda n: st.tuples(*[offers(machine) for machine in range(1, n + 1)]))


def fits_alone(each: SlotRequest, fleet: tuple[Offer, ...]) -> bool:
    """Whether it would start if no other waited."""
    [verdict] = plan([each], fleet, NOW)
    return verdict.outcome is Outcome.STARTS


def idle(fleet: tuple[Offer, ...]) -> tuple[Offer, ...]:
    """The same machines once everything that runs has ended."""
    return tuple(offer(each.machine, each.workers, each.servers, labels=each.labels) for each in fleet)


def starting(verdicts: list[Verdict]) -> list[int]:
    return [verdict.request.job for verdict in verdicts if verdict.outcome is Outcome.STARTS]


@given(QUEUES, FLEETS)
def test_no_slot_is_given_or_kept_twice(queue: tuple[SlotRequest, ...], fleet: tuple[Offer, ...]) -> None:
    verdicts = plan(queue, fleet, NOW)
    for each in fleet:
        mine = [take for verdict in verdicts for take in verdict.takes if take.machine == each.machine]
        assert sum(take.workers for take in mine) <= each.free_workers
        assert sum(take.servers for take in mine) <= each.free_servers


def test_a_script_waits_for_a_machine_that_runs_scripts() -> None:
    without, able = offer(1, workers=8), offer(2, workers=2, scripts=True)
    [verdict] = plan([ask(7, workers=2, script=True)], [without, able], NOW)
    assert (verdict.outcome, verdict.takes) == (Outcome.STARTS, (Take(machine=2, workers=2, servers=0),))
    [verdict] = plan([ask(7, workers=3, script=True)], [without, able], NOW)
    assert (verdict.outcome, verdict.machines) == (Outcome.NEVER, (2,))


def test_a_script_is_not_ahead_of_jobs_on_machines_that_it_cannot_use() -> None:
    without, able = offer(1, workers=1), offer(2, workers=1, free_workers=0, scripts=True)
    script, native = plan([ask(7, script=True), ask(8)], [without, able], NOW)
    assert (script.outcome, native.outcome) == (Outcome.WAITS, Outcome.STARTS)


@given(QUEUES, FLEETS)
def test_a_started_job_has_its_slots_on_machines_with_its_labels(
    queue: tuple[SlotRequest, ...], fleet: tuple[Offer, ...]
) -> None:
    carry = {each.machine: each for each in fleet}
    for verdict in plan(queue, fleet, NOW):
        assert all(carry[take.machine].carries(verdict.request.labels) for take in verdict.takes)
        if verdict.outcome is Outcome.STARTS:
            assert verdict.request.least <= sum(take.workers for take in verdict.takes) <= verdict.request.workers
            assert sum(take.servers for take in verdict.takes) == verdict.request.servers


@given(QUEUES, FLEETS)
def test_the_queue_is_sorted_by_priority_and_then_by_submission(
    queue: tuple[SlotRequest, ...], fleet: tuple[Offer, ...]
) -> None:
    order = [(-verdict.request.priority, verdict.request.job) for verdict in plan(queue, fleet, NOW)]
    assert order == sorted(order)


@given(QUEUES, FLEETS, st.randoms())
def test_the_same_queue_in_any_order_has_the_same_answer(
    queue: tuple[SlotRequest, ...], fleet: tuple[Offer, ...], chance
) -> None:
    mixed = list(queue)
    chance.shuffle(mixed)
    assert plan(mixed, fleet, NOW) == plan(queue, fleet, NOW)


@given(QUEUES, FLEETS)
def test_the_first_in_the_queue_that_fits_alone_starts(
    queue: tuple[SlotRequest, ...], fleet: tuple[Offer, ...]
) -> None:
    """Unless free slots are kept for one before it that has waited for long."""
    for verdict in plan(queue, fleet, NOW):
        if verdict.keeps:
            return
        if fits_alone(verdict.request, fleet):
            assert verdict.outcome is Outcome.STARTS
            return


@given(QUEUES, FLEETS)
def test_no_one_waits_for_a_job_that_can_never_start(queue: tuple[SlotRequest, ...], fleet: tuple[Offer, ...]) -> None:
    verdicts = plan(queue, fleet, NOW)
    hopeless = {verdict.request.job for verdict in verdicts if verdict.outcome is Outcome.NEVER}
    without = plan([each for each in queue if each.job not in hopeless], fleet, NOW)
    assert [verdict for verdict in verdicts if verdict.request.job not in hopeless] == without
    assert not any(hopeless & set(verdict.ahead) for verdict in verdicts)
    assert not any(verdict.takes for verdict in verdicts if verdict.request.job in hopeless)


@given(QUEUES, FLEETS)
def test_a_job_can_never_start_exactly_where_idle_machines_would_not_do(
    queue: tuple[SlotRequest, ...], fleet: tuple[Offer, ...]
) -> None:
    for verdict in plan(queue, fleet, NOW):
        assert (verdict.outcome is Outcome.NEVER) != fits_alone(verdict.request, idle(fleet))


@given(QUEUES, FLEETS)
def test_a_job_that_fits_alone_and_waits_has_someone_ahead(
    queue: tuple[SlotRequest, ...], fleet: tuple[Offer, ...]
) -> None:
    for verdict in plan(queue, fleet, NOW):
        if verdict.outcome is Outcome.WAITS and fits_alone(verdict.request, fleet):
            assert verdict.ahead


@given(asks(1), FLEETS, st.lists(st.integers(1, 6), min_size=1, max_size=12))
def test_a_job_starts_however_many_small_ones_of_its_priority_come_behind_it(
    large: SlotRequest, fleet: tuple[Offer, ...], lengths: list[int]
) -> None:
    """A new small job comes at each step, and each runs for some steps: it starts once those before its time ended."""
    if not fits_alone(large, idle(fleet)):
        return
    since = NOW - PATIENCE_S  # from now on slots are kept for it
    large = ask(1, large.workers, large.servers, least=large.least, labels=large.labels, since=since)
    running: dict[int, tuple[int, tuple[Take, ...]]] = {}
    small: list[SlotRequest] = []
    held = {each.machine: (each.workers - each.free_workers, each.servers - each.free_servers) for each in fleet}
    for step in range(max(lengths) + 2):
        if step == max(lengths):  # what ran at the beginning has ended by now
            held = {each.machine: (0, 0) for each in fleet}
        running = {job: life for job, life in running.items() if life[0] > step}
        small.append(ask(100 + step, servers=min(1, large.servers), priority=large.priority))
        free = []
        for each in fleet:
            mine = [take for _, takes in running.values() for take in takes if take.machine == each.machine]
            workers = each.workers - held[each.machine][0] - sum(take.workers for take in mine)
            servers = each.servers - held[each.machine][1] - sum(take.servers for take in mine)
            free.append(
                offer(each.machine, each.workers, each.servers, labels=each.labels)
                if workers == each.workers and servers == each.servers
                else Offer(
                    machine=each.machine,
                    workers=each.workers,
                    servers=each.servers,
                    free_workers=workers,
                    free_servers=servers,
                    labels=each.labels,
                )
            )
        verdicts = plan([large, *small], free, NOW)
        if 1 in starting(verdicts):
            return
        for verdict in verdicts:
            if verdict.outcome is Outcome.STARTS:
                running[verdict.request.job] = (step + lengths[step % len(lengths)], verdict.takes)
                small.remove(verdict.request)
    raise AssertionError("the large job never started")


def test_a_small_job_goes_before_a_large_one_that_does_not_fit_yet() -> None:
    fleet = [offer(workers=4, free_workers=2)]
    assert starting(plan([ask(1, 4), ask(2, 2)], fleet, NOW)) == [2]


def test_free_slots_are_kept_for_a_job_that_has_waited_for_long() -> None:
    fleet = [offer(workers=4, free_workers=2)]
    first, second = plan([ask(1, 4, since=NOW - PATIENCE_S), ask(2, 2)], fleet, NOW)
    assert (first.keeps, first.takes) == (True, (Take(machine=1, workers=2, servers=0),))
    assert (second.outcome, second.ahead) == (Outcome.WAITS, (1,))


def test_what_is_kept_is_no_more_than_it_could_use() -> None:
    fleet = [offer(1, workers=4, free_workers=2, labels={"gpu": "a100"}), offer(2, workers=2)]
    large = ask(1, 4, labels={"gpu": "a100"}, since=NOW - PATIENCE_S)
    assert starting(plan([large, ask(2, 2)], fleet, NOW)) == [2]


def test_a_higher_priority_goes_first() -> None:
    queue = [ask(1, 2), ask(2, 2, priority=1), ask(3, 2, priority=-1)]
    assert [each.job for each in sorted(queue, key=place)] == [2, 1, 3]
    assert starting(plan(queue, [offer(workers=4)], NOW)) == [2, 1]


def test_an_elastic_job_takes_what_there_is() -> None:
    [verdict] = plan([ask(1, 8, least=2)], [offer(1, workers=2), offer(2, workers=1)], NOW)
    assert verdict.takes == (Take(machine=1, workers=2, servers=0), Take(machine=2, workers=1, servers=0))
