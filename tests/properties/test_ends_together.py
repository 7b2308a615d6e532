"""Processes that end together lead to a restart, or to an end of the job with a sentence that names the cause."""

import contextlib
import re

from hypothesis import example, given, settings
from hypothesis import strategies as st

from controlplane.core.commands import MoveJob
from controlplane.core.context import EventRefused
from controlplane.core.states import JOB_OVER, JobState, ProcessState
from tests.core.story import Story
from tests.support.examples import examples

WORKERS, SERVERS = 2, 2

processes = st.sampled_from([*(("w", rank) for rank in range(WORKERS)), *(("s", index) for index in range(SERVERS))])
several = st.one_of(
    st.permutations([("w", 0), ("w", 1)]),
    st.permutations([("s", 0), ("s", 1)]),
    st.permutations([("w", 0), ("w", 1), ("s", 0)]),
    st.permutations([("w", 0), ("w", 1), ("s", 0), ("s", 1)]),
    st.lists(processes, min_size=1, max_size=4, unique=True),
)
acts = st.lists(
    st.one_of(
        st.tuples(st.just("die"), several),
        st.tuples(st.just("hello"), st.lists(processes, min_size=1, max_size=4, unique=True)),
        st.tuples(st.just("come_back"), st.lists(processes, min_size=1, max_size=4, unique=True)),
        st.tuples(st.just("tick"), st.sampled_from([1, 500, 5_000])),
        st.tuples(st.just("work"), st.integers(1, 3)),
        st.tuples(st.just("copies"), st.sampled_from([[0], [1], [0, 1]])),
        st.tuples(st.just("fill"), st.just(None)),
        st.tuples(st.just("finish"), st.just(None)),
    ),
    min_size=1,
    max_size=12,
)
KINDS = [
    *({"synchronization": {"barrier": barrier}} for barrier in ("bsp", "asp", "ssp", "backup")),
    {"synchronization": {"barrier": "bsp", "data": "rotation"}},
    {"synchronization": {"barrier": "bsp"}, "servers": 1},
    {"synchronization": {"barrier": "bsp"}, "checkpoint": {"every": 3}},
    {"synchronization": {"barrier": "bsp"}, "server_mode": "aggregating", "checkpoint": {"every": 3}},
    {"synchronization": {"barrier": "bsp"}, "communication": "all-reduce", "servers": 0, "checkpoint": {"every": 3}},
]
kinds = st.builds(
    lambda kind, elastic, stop: kind | {"elastic": elastic, "stop": stop},
    st.sampled_from(KINDS),
    st.fixed_dictionaries({"restarts": st.integers(0, 4), "from_scratch": st.booleans()}),
    st.sampled_from([{"iterations": 2}, {"iterations": 400}]),
)


class Fate:
    """A job whose processes end, return and work as they are told, and do nothing that they could not."""

    def __init__(self, kind: dict) -> None:
        self.story = Story(**({"workers": WORKERS, "servers": SERVERS, "batch_size": 16} | kind))
        self.story.starting()

    @property
    def job(self):
        return self.story.engine._job

    @property
    def state(self) -> JobState:
        return self.story.given(MoveJob)[-1].state

    def process(self, role, index):
        """None where the job has no such process."""
        return self.job.process("worker" if role == "w" else "server", index)

    def is_in(self, state, role, index) -> bool:
        process = self.process(role, index)
        return process is not None and process.state is state

    def die(self, who) -> None:
        for role, index in who:
            process = self.process(role, index)
            if process is not None and not process.over:
                self.see(self.story.kill if role == "w" else self.story.kill_server, index)

    def hello(self, who) -> None:
        for role, index in who:
            if self.is_in(ProcessState.ORDERED, role, index):
                self.see(self.story.hello if role == "w" else self.story.server_hello, index)

    def come_back(self, who) -> None:
        self.tick(500)
        self.hello(who)

    def tick(self, after_ms) -> None:
        self.see(self.story.tick, after_ms=after_ms)

    def work(self, iterations) -> None:
        for _ in range(iterations):
            for rank in range(WORKERS):
                worker = self.job.workers[rank]
                orders = self.story.orders.get(rank)
                if worker.state is not ProcessState.READY or not self.job.counts(rank) or orders is None:
                    continue
                if worker.done < worker.watermark:
                    self.see(self.story.report, rank, worker.done + 1)

    def copies(self, blocks) -> None:
        refill = self.job.refilling.current
        for rank in list(refill.reporting) if refill is not None else []:
            version = max(0, self.job.round.completed)
            self.see(self.story.copies, rank, (version, version, [block for block in blocks if block in refill.lost]))

    def fill(self, _=None) -> None:
        refill = self.job.refilling.current
        for index in list(refill.servers) if refill is not None and refill.placed else []:
            if self.is_in(ProcessState.READY, "s", index):
                blocks = [block for block in refill.lost if self.job.placement.blocks[block].server == index]
                self.see(self.story.filled, index, blocks)

    def finish(self, _=None) -> None:
        for rank in list(self.job.generation.roster):
            worker = self.job.workers[rank]
            at = self.job.end.stop_at if worker.stop_at is None else worker.stop_at
            if worker.state is ProcessState.READY and at is not None and worker.done >= at - 1:
                self.see(self.story.finish, rank, at)

    def serve(self) -> None:
        """Servers say how far their blocks are."""
        for index in range(SERVERS):
            if self.is_in(ProcessState.READY, "s", index) and self.job.generation.number:
                self.see(self.story.server_report, index, highest=max(0, self.job.round.completed + 1))

    def see(self, act, *args, **kwargs) -> None:
        if self.state in JOB_OVER:
            return
        with contextlib.suppress(EventRefused):
            act(*args, **kwargs)
        if self.story.engine.failure is not None:
            raise self.story.engine.failure
        self.story.engine.validate()

    def live_on(self) -> None:
        """From now on nothing ends any more, and everyone does what the orders say."""
        everybody = [*(("w", rank) for rank in range(WORKERS)), *(("s", index) for index in range(SERVERS))]
        for _ in range(12):
            for act, what in (
                ("tick", 500),
                ("hello", everybody),
                ("copies", [0, 1]),
                ("fill", None),
            ):
                getattr(self, act)(what)
            self.serve()
            self.work(2)
            self.finish()
            self.tick(8_000)


@settings(max_examples=examples(400), deadline=None)
@given(kind=kinds, told=acts)
@example(
    kind={"elastic": {"restarts": 1, "from_scratch": False}, "stop": {"iterations": 2}},
    told=[("die", [("w", 0)]), ("come_back", [("w", 0)]), ("die", [("w", 1), ("w", 0)])],
)
def test_whatever_ends_together_the_job_restarts_or_fails_with_a_cause(kind, told):
    fate = Fate(kind)
    everybody = [("s", 0), ("s", 1), ("w", 0), ("w", 1)]
    fate.hello(everybody)
    for act, what in told:
        getattr(fate, act)(what)
    before = fate.job.round.completed
    fate.live_on()
    if fate.state is JobState.FAILED:
        reason = fate.story.given(MoveJob)[-1].reason
        assert re.search(r"\b[ws]\d+ ", reason), reason
        assert "could not be handled" not in reason
    elif fate.state not in JOB_OVER:
        assert fate.state is JobState.RUNNING, (fate.state, fate.job.pauses, fate.job.awaited)
        assert fate.job.round.completed > before or any(w.done > before for w in fate.job.workers.values())
