"""Laws of the engine under any sequence of events, whether they make sense or not."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from controlplane.core.commands import IssueOrders, MoveJob, ReleaseSlots, SetRoster, SetShares
from controlplane.core.context import EventRefused
from controlplane.core.engine import Engine
from controlplane.core.events import (
    Assignment,
    ChangeRequested,
    ConnectionLost,
    ControlPlaneResumed,
    DrainRequested,
    ExclusionRequested,
    InclusionRequested,
    PauseRequested,
    ResumeRequested,
    ServerRequested,
    SlotRefused,
    SlotsAssigned,
    StopRequested,
)
from controlplane.core.states import JOB_OVER
from controlplane.policies.registry import names, resolve
from controlplane.protocol.messages import Computed, Evaluation, ProgressReport, Quiesced
from controlplane.protocol.spec import Choice
from tests.core.story import LB_BSP, Story
from tests.support.examples import examples

ranks = st.integers(0, 3)
speeds = st.sampled_from([1.0, 250.0, 1000.0])
barriers = st.sampled_from(names("barrier"))


class AnyStory(RuleBasedStateMachine):
    """Tells an engine anything, and a copy that lives from snapshots the same."""

    @initialize(
        policy=st.sampled_from([LB_BSP, {}]),
        barrier=barriers,
        iterations=st.sampled_from([3, 400]),
        begun=st.booleans(),
        elastic=st.fixed_dictionaries(
            {"restarts": st.integers(0, 3), "from_scratch": st.booleans()},
            optional={"minimum_workers": st.integers(1, 4), "global_batch": st.just("scale")},
        ),
        limits=st.sampled_from([{}, {}, {"maximum": 70}]),
    )
    def submit(self, policy, barrier, iterations, begun, elastic, limits):
        chosen = policy | {"barrier": barrier}
        stop = {"iterations": iterations, "accuracy": 0.9}
        self.story = Story(synchronization=chosen, stop=stop, elastic=elastic, limits=limits)
        self.told: list[tuple[int, int, int]] = []
        self.watermarks: dict[tuple[int, int], int] = {}
        (self.story.running if begun else self.story.starting)()
        self.copy = Engine.restore(self.story.engine.snapshot(), resolve=resolve)

    def tell(self, act, *args, **kwargs):
        """Do something with the story; the copy must answer the same."""
        before, refused = len(self.story.entries), False
        commands = []
        try:
            commands = act(*args, **kwargs)
        except EventRefused:
            refused = True
        for entry in self.story.entries[before:]:
            try:
                assert self.copy.handle(entry) == commands
            except EventRefused:
                assert refused
        self.copy = Engine.restore(self.copy.snapshot(), resolve=resolve)
        self.check_orders(commands)

    def check_orders(self, commands):
        for command in commands:
            if isinstance(command, IssueOrders):
                key = (command.rank, command.orders.generation)
                assert command.orders.watermark >= self.watermarks.get(key, -1)
                self.watermarks[key] = command.orders.watermark
                assert not self.told or command.orders.rank_in_time > self.told[-1]
                self.told.append(command.orders.rank_in_time)

    def report_one(self, rank, speed):
        done = self.story.engine._job.workers[rank].done
        if rank in self.story.orders:
            self.tell(self.story.report, rank, done + 1, compute_s=self.story.orders[rank].share / speed)

    @rule(rank=ranks)
    def say_hello(self, rank):
        self.tell(self.story.hello, rank)

    @rule(index=st.integers(0, 1))
    def server_says_hello(self, index):
        self.tell(self.story.server_hello, index)

    @precondition(lambda self: self.story.orders)
    @rule(rank=ranks, speed=speeds)
    def report_next(self, rank, speed):
        self.report_one(rank, speed)

    @precondition(lambda self: self.story.orders)
    @rule(speed=speeds)
    def everybody_reports(self, speed):
        for rank in range(4):
            self.report_one(rank, speed)

    @precondition(lambda self: self.story.orders)
    @rule(rank=ranks, number=st.integers(1, 40), iteration=st.integers(0, 500), generation=st.integers(0, 3))
    def report_anything(self, rank, number, iteration, generation):
        if rank in self.story.orders:
            self.tell(self.story.report, rank, iteration, number=number, generation=generation)

    @precondition(lambda self: self.story.orders)
    @rule(rank=ranks, accuracy=st.sampled_from([None, 0.5, 0.95]))
    def score(self, rank, accuracy):
        number = self.story.next_number(rank)
        scored = Evaluation(number=number, iteration=1, loss=1.0, accuracy=accuracy, samples=10, seconds=0.1)
        self.tell(self.story.say, rank, scored)

    @precondition(lambda self: self.story.orders)
    @rule(rank=ranks)
    def finish(self, rank):
        self.tell(self.story.finish, rank, self.story.engine._job.round.completed + 1)

    @precondition(lambda self: self.story.orders)
    @rule(rank=ranks, ahead=st.integers(0, 2), samples=st.sampled_from([0, 10, 64]), ready=st.booleans())
    def say_how_far(self, rank, ahead, samples, ready):
        fields = {"iteration": self.story.engine._job.workers[rank].done + ahead, "generation": 1}
        if fields["iteration"] < 0:
            return
        number = self.story.next_number(rank)
        if ready:
            self.tell(self.story.say, rank, Computed(number=number, samples=samples, **fields))
        else:
            self.tell(self.story.say, rank, ProgressReport(number=number, samples_done=samples, **fields))

    @precondition(lambda self: self.story.orders)
    @rule(rank=ranks, back=st.integers(0, 6))
    def stand(self, rank, back):
        job = self.story.engine._job
        sequence = max(0, self.story.orders[rank].sequence - back) if rank in self.story.orders else 0
        held = Quiesced(
            number=self.story.next_number(rank),
            generation=1,
            iteration=job.workers[rank].done + 1,
            sequence=sequence,
        )
        self.tell(self.story.say, rank, held)

    @precondition(lambda self: len(self.story.entries) > 10)
    @rule(barrier=barriers, batching=st.sampled_from(["uniform", "lb-bsp-cpu"]))
    def change(self, barrier, batching):
        choices = {"barrier": Choice(name=barrier), "batching": Choice(name=batching)}
        self.tell(self.story.see, ChangeRequested(actor="ada", choices=choices))

    @rule(resumes=st.booleans())
    def pause_or_resume(self, resumes):
        self.tell(self.story.see, ResumeRequested(actor="ada") if resumes else PauseRequested(actor="ada"))

    @rule(rank=ranks, wish=st.sampled_from([ExclusionRequested, InclusionRequested]))
    def leave_out_or_take_back(self, rank, wish):
        self.tell(self.story.see, wish(actor="ada", rank=rank))

    @rule(role=st.sampled_from(["worker", "server"]), index=ranks)
    def drain(self, role, index):
        self.tell(self.story.see, DrainRequested(actor="ada", role=role, index=index))

    @rule(granted=st.booleans())
    def ask_for_a_server(self, granted):
        self.tell(self.story.see, ServerRequested(actor="ada"))
        request = self.story.engine._job.placement.request
        if request is not None and not granted:
            self.tell(self.story.see, SlotRefused(role="server", index=request.index, reason="none is free"))

    @rule(rank=ranks, status=st.sampled_from([0, 1, -9]), lost=st.booleans())
    def kill(self, rank, status, lost):
        self.tell(self.story.kill, rank, status=status, is_agent_lost=lost)

    @precondition(lambda self: not self.story.engine.over)
    @rule(rank=ranks, agent=st.integers(1, 3))
    def find_slot(self, rank, agent):
        place = Assignment(role="worker", index=rank, agent=agent, slot=rank)
        self.tell(self.story.see, SlotsAssigned(assignments=[place]))

    @rule(rank=ranks)
    def lose_connection(self, rank):
        self.tell(self.story.see, ConnectionLost(role="worker", index=rank, instance=f"w{rank}.0.1"))

    @rule(
        after_ms=st.sampled_from([1, 500, 2_000, 5_000, 61_000]),
        silent=st.frozensets(ranks, max_size=2),
        away=st.sampled_from([(), (), (1,), (2,), (1, 2)]),
    )
    def tick(self, after_ms, silent, away):
        self.tell(self.story.tick, after_ms=after_ms, silent=silent, away=away)

    @rule()
    def resume(self):
        self.tell(self.story.see, ControlPlaneResumed(who="test"))

    @precondition(lambda self: len(self.story.entries) > 20)
    @rule()
    def stop(self):
        self.tell(self.story.see, StopRequested(actor="ada"))

    @precondition(lambda self: len(self.story.entries) > 15)
    @rule(index=st.integers(0, 1))
    def kill_server(self, index):
        self.tell(self.story.kill_server, index)

    @precondition(lambda self: self.story.engine._job.refilling.current is not None)
    @rule(ranks=st.sets(ranks, min_size=1), blocks=st.lists(st.integers(0, 1), unique=True))
    def say_copies(self, ranks, blocks):
        version = max(0, self.story.engine._job.round.completed)
        for rank in ranks & self.story.orders.keys():
            self.tell(self.story.copies, rank, (version, version, blocks))

    @precondition(lambda self: self.story.engine._job.refilling.current is not None)
    @rule(index=st.integers(0, 1), blocks=st.lists(st.integers(0, 1), unique=True))
    def fill(self, index, blocks):
        self.tell(self.story.filled, index, blocks)

    @precondition(lambda self: self.story.given(SetRoster))
    @rule(index=st.integers(0, 1), ahead=st.integers(0, 2))
    def server_reports(self, index, ahead):
        if self.story.instance("s", index) in self.story.numbers:
            self.tell(self.story.server_report, index, highest=self.story.engine._job.round.completed + 1 + ahead)

    @invariant()
    def every_invariant_holds(self):
        if hasattr(self, "story"):
            self.story.engine.validate()

    @invariant()
    def shares_always_sum_to_the_global_batch(self):
        for command in self.story.given(SetShares) if hasattr(self, "story") else ():
            scales = self.story.spec.elastic.global_batch == "scale"
            assert sum(command.shares.values()) == (64 * len(command.shares) if scales else 256)

    @invariant()
    def job_is_never_ended_by_a_fault_of_ours(self):
        if hasattr(self, "story") and self.story.engine.failure is not None:
            raise self.story.engine.failure

    @invariant()
    def job_ends_once_and_gives_its_slots_back_once(self):
        if hasattr(self, "story"):
            assert sum(command.state in JOB_OVER for command in self.story.given(MoveJob)) <= 1
            assert len(self.story.given(ReleaseSlots)) <= 1


TestAnyStory = AnyStory.TestCase
TestAnyStory.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
