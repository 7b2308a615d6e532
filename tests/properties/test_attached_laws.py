"""Laws of attached jobs under any sequence of events: ranks come, go, speak, fall silent, and people ask for things."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from controlplane.core.commands import IssueOrders, IssuePlacement, RejectMessage, StartProcess, StopProcess
from controlplane.core.context import EventRefused
from controlplane.core.engine import Engine
from controlplane.core.events import (
    ChangeRequested,
    ControlPlaneResumed,
    IncarnationBegan,
    PauseRequested,
    ResumeRequested,
    StopRequested,
)
from controlplane.core.states import JOB_OVER
from controlplane.policies.registry import resolve
from controlplane.protocol.base import MAX_INT32
from controlplane.protocol.spec import Choice
from tests.core.attached import Attached
from tests.core.story import LB_BSP

ranks = st.integers(0, 2)
worlds = st.sampled_from([2, 3, 3, 3])
BATCHINGS = st.sampled_from(["uniform", "lb-bsp-cpu", "lb-bsp-gpu", "lb-bsp-linear"])


class AnyAttached(RuleBasedStateMachine):
    """Tells an engine anything, and a copy that lives from snapshots the same."""

    @initialize(
        policy=st.sampled_from([LB_BSP, {}]),
        iterations=st.none() | st.integers(1, 30),
        multiple=st.sampled_from([1, 1, 8]),
        begun=st.booleans(),
        fill=st.none() | st.just({"limit": 3.0, "learning_rate": "linear"}),
    )
    def submit(self, policy: Any, iterations: Any, multiple: int, begun: bool, fill: Any) -> None:
        options = {"stop": {"iterations": iterations}, "sample_multiple": multiple, "wait_s": 100, "fill": fill}
        self.story = Attached(workers=3, synchronization=policy, **options)
        self.versions: dict[str, int] = {}
        self.incarnation = 0
        (self.story.running if begun else self.story.submitted)()
        self.copy = Engine.restore(self.story.engine.snapshot(), resolve=resolve)

    def tell(self, act: Any, *args: Any, **kwargs: Any) -> None:
        """Do something with the story; the copy must answer the same."""
        before, refused, commands = len(self.story.entries), False, []
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
        for command in commands:
            assert not isinstance(command, StartProcess | StopProcess | IssuePlacement)
            if isinstance(command, IssueOrders):
                self.check(command)

    def check(self, command: IssueOrders) -> None:
        orders = command.orders
        assert orders.watermark == MAX_INT32
        assert orders.share == orders.shares[command.rank]
        assert orders.offset == sum(orders.shares[: command.rank])
        assert sum(orders.shares) == orders.global_batch
        assert orders.shares_version >= self.versions.get(command.instance, 0)
        self.versions[command.instance] = orders.shares_version

    @rule(rank=ranks, world=worlds, iteration=st.none() | st.integers(0, 20), batch=st.sampled_from([32, 32, 32, 16]))
    def comes(self, rank: int, world: int, iteration: int | None, batch: int) -> None:
        if rank < world:
            about = {"world": world, "iteration": iteration, "batch_size": batch, "scales_lr": batch == 32}
            self.tell(self.story.comes, rank, **about)

    @precondition(lambda self: self.story.lives)
    @rule(rank=ranks)
    def comes_again(self, rank: int) -> None:
        if rank in self.story.lives:
            self.tell(self.story.comes, rank, again=True)

    @rule(world=worlds, iteration=st.none() | st.integers(0, 20))
    def all_come(self, world: int, iteration: int | None) -> None:
        for rank in range(world):
            self.tell(self.story.comes, rank, world=world, iteration=iteration, scales_lr=True)

    @rule(rank=ranks)
    def drops(self, rank: int) -> None:
        if rank in self.story.lives:
            self.tell(self.story.drops, rank)

    @rule(rank=ranks, ahead=st.integers(0, 3), compute_s=st.floats(0.01, 2))
    def reports(self, rank: int, ahead: int, compute_s: float) -> None:
        worker = self.story.job.workers.get(rank)
        if rank not in self.story.orders or worker is None or rank >= len(self.story.orders[rank].shares):
            return
        over = self.story.state in JOB_OVER
        iteration = max(-1, worker.done) + 1 + ahead
        commands_before = len(self.story.commands)
        self.tell(self.story.report, rank, iteration, compute_s=compute_s)
        told = [one for one in self.story.commands[commands_before:] if isinstance(one, RejectMessage)]
        assert over or all(one.rejection.code == "stale" for one in told)

    @rule(rounds=st.integers(1, 6), slow=ranks)
    def all_report(self, rounds: int, slow: int) -> None:
        for _ in range(rounds):
            for rank in range(3):
                self.reports(rank, 0, 0.5 if rank == slow else 0.1)

    @rule(memory=st.floats(0.0, 1.0))
    def the_next_pass_begins(self, memory: float) -> None:
        """With the batch that was asked for."""
        job = self.story.job
        before = [*job.generation.shares.values()]
        if len(before) != 3 or self.story.state in JOB_OVER or not all(rank in self.story.orders for rank in range(3)):
            return
        asked = job.attachment.fill_batch
        grown = [each * asked // sum(before) for each in before]
        grown[0] += asked - sum(grown)
        for _ in range(3):
            for rank in range(3):
                iteration = max(-1, job.workers[rank].done) + 1
                samples = max(1, grown[rank]) if asked > sum(before) else before[rank]
                self.tell(self.story.report, rank, iteration, samples=samples, memory=memory)

    @rule(rank=ranks, iteration=st.integers(0, 30))
    def ends(self, rank: int, iteration: int) -> None:
        if rank in self.story.lives:
            self.tell(self.story.done, rank, iteration)

    @rule(rank=ranks)
    def stands(self, rank: int) -> None:
        if rank in self.story.orders and rank in self.story.job.workers:
            self.tell(self.story.held, rank, max(-1, self.story.job.workers[rank].done) + 1)

    @rule(seconds=st.sampled_from([0.5, 9.0, 16.0, 40.0, 101.0]), speaking=st.sets(ranks))
    def time_passes(self, seconds: float, speaking: set[int]) -> None:
        self.tell(self.story.passes, seconds, speaking=tuple(speaking))

    @rule(
        event=st.sampled_from(
            [PauseRequested(actor="ann"), ResumeRequested(actor="ann"), ControlPlaneResumed(who="gateway")]
        )
    )
    def is_asked(self, event: Any) -> None:
        self.tell(self.story.see, event)

    @rule(name=BATCHINGS)
    def changes(self, name: str) -> None:
        self.tell(self.story.see, ChangeRequested(actor="ann", choices={"batching": Choice(name=name)}))

    @rule(late=st.booleans())
    def loses_a_part_of_the_log(self, late: bool) -> None:
        self.incarnation += 1
        published = {rank: orders for rank, orders in self.story.orders.items() if late}
        event = IncarnationBegan(incarnation=self.incarnation, reason="lost", after="0-1", published=published)
        self.tell(self.story.see, event)

    @precondition(lambda self: len(self.story.entries) > 25)
    @rule(status=st.sampled_from([0, 1, -9]), asked=st.booleans())
    def is_over(self, status: int, asked: bool) -> None:
        if asked:
            self.tell(self.story.see, StopRequested(actor="ann"))
        else:
            self.tell(self.story.launcher_ends, status)

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "story"):
            assert self.story.engine.failure is None, self.story.engine.failure
            self.story.engine.validate()
            assert self.copy.snapshot() == self.story.engine.snapshot()


TestAnyAttached = AnyAttached.TestCase
TestAnyAttached.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
