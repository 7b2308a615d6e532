"""Workers with data of their own: whoever joins, leaves or changes policies, no sample is lost or done twice."""

import contextlib
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.core.commands import IssueOrders, MoveJob
from controlplane.core.context import EventRefused
from controlplane.core.events import ChangeRequested, ExclusionRequested, InclusionRequested
from controlplane.core.states import JOB_OVER, ProcessState
from controlplane.protocol.schedule import Schedule
from controlplane.protocol.spec import Choice
from tests.core.story import LB_BSP, Story
from tests.support.examples import examples

WORKERS = 4
SPLITS = [
    {"name": "rotation", "splits": 1},
    {"name": "rotation", "splits": 3},
    {"name": "exchange", "splits": 1, "gap": 1},
    {"name": "exchange", "splits": 2, "method": "migrate", "gap": 1},
]
ranks = st.integers(0, WORKERS - 1)
acts = st.lists(
    st.one_of(
        st.tuples(st.just("iterate"), st.lists(st.sampled_from([100.0, 300.0, 1000.0]), min_size=4, max_size=4)),
        st.tuples(st.just("report"), ranks),
        st.tuples(st.just("kill"), ranks),
        st.tuples(st.just("leave_out"), ranks),
        st.tuples(st.just("take_back"), ranks),
        st.tuples(st.just("come_back"), st.none()),
        st.tuples(st.just("batching"), st.sampled_from(["uniform", "lb-bsp-cpu"])),
        st.tuples(st.just("data"), st.sampled_from(["shared", "rotation", "exchange"])),
    ),
    min_size=1,
    max_size=14,
)


class Tally:
    """A job of workers with splits, and how often each sample was processed by what was reported."""

    def __init__(self, data: dict, samples: int, batch: int, barrier: str) -> None:
        self.story = Story(
            workers=WORKERS,
            batch_size=batch,
            synchronization=LB_BSP | {"data": data, "barrier": barrier},
            elastic={"restarts": 50, "from_scratch": True},
        )
        self.story.sample_count = samples
        self.story.running()
        self.times: Counter[int] = Counter()

    @property
    def job(self):
        return self.story.engine._job

    @property
    def splits(self):
        state = self.story.engine._policies.data_state
        return state.splits if state is not None else []

    def see(self, act, *args, **kwargs):
        with contextlib.suppress(EventRefused):
            act(*args, **kwargs)
        if self.story.engine.failure is not None:
            raise self.story.engine.failure
        self.story.engine.validate()
        assert self.story.given(MoveJob)[-1].state not in JOB_OVER, self.story.given(MoveJob)[-1].reason
        assert (
            not self.splits
            or {split.owner for split in self.splits} == set(self.job.generation.roster or [0])
            or (not self.job.generation.roster)
        )

    def heard(self, rank) -> Schedule:
        """The orders of a worker's present life, as it goes by them."""
        instance = self.story.instance("w", rank)
        mine = [c.orders for c in self.story.given(IssueOrders) if (c.rank, c.instance) == (rank, instance)]
        schedule = Schedule()
        for orders in mine:
            schedule.receive(orders)
        return schedule

    def report(self, rank, speed=300.0):
        worker = self.job.workers[rank]
        if not self.job.counts(rank) or worker.state is not ProcessState.READY or worker.done >= worker.watermark:
            return
        iteration = max(worker.done + 1, self.story.orders[rank].skip_to)
        task = self.heard(rank).task(iteration)
        pieces, given = task.pieces, task.most if task.pieces else task.share
        positions = [at for piece in pieces for at in range(piece.start, piece.stop)]
        if sum(split.size for split in self.splits) >= self.job.batch:
            assert len(set(positions)) == len(positions), "a sample twice in one iteration"
        self.times.update(positions)
        took = {"compute_s": max(1, given) / speed, "samples": given, "position": task.position if pieces else 0}
        self.see(self.story.report, rank, iteration, **took)

    def iterate(self, speeds):
        for rank in range(WORKERS):
            self.report(rank, speeds[rank])

    def kill(self, rank):
        if not self.job.workers[rank].over and len(self.job.generation.roster) > 1:
            self.see(self.story.kill, rank)

    def leave_out(self, rank):
        if len(self.job.generation.roster) > 1:
            self.see(self.story.see, ExclusionRequested(actor="ada", rank=rank))

    def take_back(self, rank):
        self.see(self.story.see, InclusionRequested(actor="ada", rank=rank))

    def come_back(self, _=None):
        self.see(self.story.tick, after_ms=61_000)
        for rank, worker in self.job.workers.items():
            if worker.state is ProcessState.ORDERED:
                self.see(self.story.hello, rank)

    def batching(self, name):
        self.see(self.story.see, ChangeRequested(actor="ada", choices={"batching": Choice(name=name)}))

    def data(self, name):
        before = self.job.synchronization.data.name
        self.see(self.story.see, ChangeRequested(actor="ada", choices={"data": Choice(name=name)}))
        if "shared" in (name, before) and name != before:
            self.times.clear()


@pytest.mark.parametrize("barrier", ["bsp", "asp"])
@settings(max_examples=examples(100), deadline=None)
@given(
    data=st.sampled_from(SPLITS),
    samples=st.sampled_from([4, 7, 40, 200]),
    batch=st.sampled_from([1, 4, 10]),
    told=acts,
)
def test_joins_and_departures_lose_or_repeat_no_sample(barrier, data, samples, batch, told):
    tally = Tally(data, samples, batch, barrier)
    for act, what in told:
        getattr(tally, act)(what)
        check_counts(tally, barrier)


def check_counts(tally, barrier):
    """What was reported is what the splits say; of an open iteration they know later, without lockstep at once."""
    is_open = any(worker.pieces.drawn for worker in tally.job.workers.values())
    for split in tally.splits:
        for position in range(split.start, split.stop):
            if barrier == "asp":
                assert tally.times[position] <= split.times(position), "done twice in a pass"
            elif not is_open:
                assert tally.times[position] == split.times(position)
