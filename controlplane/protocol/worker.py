"""The worker's state machine: what a worker may do next, under the orders received so far. Pure.

A driver owns everything else: sockets, threads, clocks, data, tensors. It passes in orders and completed steps, and
requests the next step::

    worker.receive(orders)           # newer orders replace older ones as a whole; others change nothing
    while True:
        match worker.next(now_s):
            case Step.ASK:     ...   # worker.peers.asks, then worker.peers.answered(...) or .silent(...) for each
            case Step.PULL:    ...   # the parameters for worker.iteration, then worker.pulled(now_s)
            case Step.COMPUTE: ...   # worker.task, then worker.computed(samples)
            case Step.PUSH:    ...   # then worker.pushed(), or worker.missed() if others made the iteration
            case Step.FINISH:  ...   # nothing is left to do: worker.finished(...)
            case Step.WAIT:    ...   # until new orders, a completed step, or worker.wake_at_s

A pull or push is made under ``worker.term``; a server that has newer orders refuses it (``refused``). Each step is
returned once. ``say`` is called with each message for the control plane, as a function of the message's number:
numbering, and resending until messages are durable, belong to ``protocol.outbox``. The driver itself sends hellos and
reports. If sending one may cause orders to arrive before it returns, the driver calls ``pushed`` first.

An iteration goes through these phases. Orders may return it to the boundary from any of them (``skip_to``): then
``attempt`` increases, by which a driver detects that its work in progress is no longer needed.

At the boundary a worker may have to query its peers before it continues (``peers``); at the job's end no worker waits.

    STARTING -orders--> BOUNDARY --> PULL --pulled--> SHARE --> COMPUTE --computed--> PUSH --pushed--> BOUNDARY
                          |         |  ^                                             |  ^
                          |  refused|  |newer term                            refused|  |newer term
                          v         v  |                                             v  |
                      FINISHED     STALE                                            STALE
"""

from collections.abc import Callable
from enum import Enum, IntEnum
from functools import partial
from typing import Final

from controlplane.protocol.messages import Computed, ProgressReport, Quiesced, WorkerFinished
from controlplane.protocol.orders import Orders
from controlplane.protocol.peers import Passing, PeerBarrier
from controlplane.protocol.schedule import Schedule, Task

Due = Computed | Quiesced | ProgressReport | WorkerFinished
"""Messages that the state machine itself sends."""

Build = Callable[[int], Due]
"""Makes a message from its number."""


class Phase(IntEnum):
    """The phase of a worker."""

    STARTING = 0
    """It has received no orders yet."""
    BOUNDARY = 1
    """Between two iterations: it waits to be granted the next one."""
    PULL = 2
    SHARE = 3
    """It has the parameters, and waits for orders that name its share, with a time limit."""
    COMPUTE = 4
    PUSH = 5
    STALE = 6
    """Its pull or push was refused: it waits for orders of a newer generation."""
    FINISHED = 7


STARTING, BOUNDARY, PULL, SHARE, COMPUTE, PUSH, STALE, FINISHED = Phase
"""Bound to names: looking up a member in its class takes ten times as long, and a simulation
does so millions of times.
"""


class Step(Enum):
    """The next step."""

    WAIT = "wait"
    ASK = "ask"
    PULL = "pull"
    COMPUTE = "compute"
    PUSH = "push"
    FINISH = "finish"


Term = tuple[int, int]
"""Incarnation and generation."""

NO_TERM: Final = (-1, -1)

MAY_BEGIN: Final = Passing.BEGIN

WAIT: Final = Step.WAIT
COMPUTE_STEP: Final = Step.COMPUTE

STEPS: Final = {PULL: Step.PULL, PUSH: Step.PUSH}
"""Steps that involve servers and may have to be repeated."""


class UnexpectedStep(RuntimeError):
    """A driver reported a step that was not due."""


class WorkerMachine:
    """One worker instance.

    Args:
        say: called with each message to send.
        rank: its own, if orders may let it sample its peers.
    """

    __slots__ = (
        "_given",
        "_held_at",
        "_refused_in",
        "_say",
        "_schedule",
        "attempt",
        "can_hold",
        "iteration",
        "orders",
        "peers",
        "phase",
        "task",
        "term",
        "wake_at_s",
    )

    def __init__(self, say: Callable[[Build], object], rank: int = 0) -> None:
        self._say, self._schedule = say, Schedule()
        self.peers = PeerBarrier(rank)
        """What it knows about other workers, if it samples them itself."""
        self.orders: Orders | None = None
        """The newest orders."""
        self.phase = STARTING
        self.iteration = 0
        """The current iteration, or the next one between iterations."""
        self.attempt = 0
        """Increases whenever the work in progress is no longer needed."""
        self.task: Task | None = None
        """The samples of the iteration, from ``COMPUTE`` on."""
        self.term: Term = NO_TERM
        """The term of the orders under which it pulls or pushes."""
        self.wake_at_s: float | None = None
        """When to call ``next`` again, even without new orders."""
        self.can_hold = True
        """Whether it can pause here: with all-reduce, all workers must pause before the same sum."""
        self._held_at: tuple[int, int, int] | None = None
        self._given = True
        """Whether the step of this phase was returned."""
        self._refused_in = PULL
        """The phase to which it returns from ``STALE``."""

    # -- inputs

    def receive(self, orders: Orders) -> bool:
        """Accept ``orders`` if they are newer than all previous ones; return whether they are."""
        if not self._schedule.receive(orders):
            return False
        if self.orders is None:
            self.iteration = orders.share_from
            self._enter(BOUNDARY)
        self.orders = orders
        if orders.skip_to > self.iteration and self.phase is not FINISHED:
            self._skip_to(orders.skip_to)
        return True

    # -- what it may do

    def next(self, now_s: float) -> Step:
        """The next step. ``now_s``: of the driver's own clock, also used for ``pulled``."""
        phase = self.phase
        if phase is SHARE:
            return self._await_share(now_s)
        if phase is BOUNDARY:
            return self._await_grant(now_s)
        if phase is STALE and self._newest_term() > self.term:
            phase = self._refused_in
            self._enter(phase)
        if not self._given and phase in STEPS:
            self._given, self.term = True, self._newest_term()
            return STEPS[phase]
        return WAIT

    @property
    def is_cut(self) -> bool:
        """Whether to stop computing and push the partial sum."""
        return self.orders is not None and self.orders.cut == self.iteration

    @property
    def may_end_early(self) -> bool:
        """Whether an iteration may have to end before its whole share is computed, by a cut or a time budget."""
        orders = self.orders
        return orders is not None and (orders.progress_s is not None or orders.budget_s is not None or orders.announce)

    @property
    def progress_s(self) -> float | None:
        """How often to call ``progressed`` while computing."""
        return None if self.orders is None else self.orders.progress_s

    def coming(self, iteration: int) -> Task | None:
        """The task of a later iteration under the current orders, which may change before it begins. None: the end."""
        ends_at = None if self.orders is None else self.orders.stop_at
        return None if ends_at is not None and ends_at <= iteration else self._schedule.coming(iteration)

    # -- what it has done

    def pulled(self, now_s: float) -> None:
        """The parameters for the iteration have arrived."""
        if self.phase is not PULL:
            raise self._unexpected(PULL)
        assert self.orders is not None
        self._enter(SHARE)
        self.wake_at_s = now_s + self.orders.decision_timeout_s

    def progressed(self, samples: int) -> None:
        """Number of samples done so far; reported if orders request it."""
        if self.phase is not COMPUTE:
            raise self._unexpected(COMPUTE)
        if self.progress_s is not None:
            message = partial(ProgressReport, iteration=self.iteration, samples_done=samples)
            self._say(self._of_generation(message))

    def computed(self, samples: int) -> None:
        """The update covers this many samples; announced before the push if orders request it."""
        if self.phase is not COMPUTE:
            raise self._unexpected(COMPUTE)
        if self.orders is not None and self.orders.announce:
            self._say(self._of_generation(partial(Computed, iteration=self.iteration, samples=samples)))
        self._enter(PUSH)

    def pushed(self) -> None:
        """The update was counted. The driver sends its report, under ``term`` with the samples of ``task``."""
        if self.phase is not PUSH:
            raise self._unexpected(PUSH)
        self.iteration += 1
        self._enter(BOUNDARY)

    def again(self) -> None:
        """Blocks have moved, and the pull or push is incomplete: it should be repeated."""
        if self.phase not in STEPS:
            raise self._unexpected(*STEPS)
        self._enter(self.phase)

    def refused(self) -> None:
        """A server has orders of a newer generation: the pull or push should be repeated under those."""
        if self.phase not in STEPS:
            raise self._unexpected(*STEPS)
        self._refused_in = self.phase
        self._enter(STALE)

    def missed(self) -> None:
        """Other workers completed the iteration, or it need not be reported for another reason."""
        if self.phase not in (STARTING, BOUNDARY, FINISHED):
            self._skip_to(self.iteration + 1)

    def finished(self, *, model_saved: bool) -> None:
        """All remaining work is done."""
        if self.phase is not FINISHED:
            raise self._unexpected(FINISHED)
        self._say(partial(_finished, self.iteration, model_saved))

    def jump(self, iteration: int, phase: Phase) -> None:
        """Go to that step, if a driver knows that the orders lead there: ``PULL`` or ``COMPUTE``."""
        self.iteration = iteration
        self.task = self._schedule.task(iteration if phase is COMPUTE else iteration - 1)
        self._enter(phase)
        if phase is PULL:
            self._given, self.term = True, self._newest_term()

    def forget_before(self, iteration: int) -> None:
        """Drop orders that no iteration from that one on needs, if a driver bypasses ``next``."""
        self._schedule.forget_before(iteration)

    # -- phases

    def _await_grant(self, now_s: float) -> Step:
        orders, k = self.orders, self.iteration
        assert orders is not None
        self.wake_at_s = None
        if orders.stop_at is not None and orders.stop_at <= k:
            self._enter(FINISHED)
            return Step.FINISH
        if orders.hold and self.can_hold:
            if self._held_at != orders.rank_in_time:
                self._held_at = orders.rank_in_time
                self._say(self._of_generation(partial(Quiesced, iteration=k, sequence=orders.sequence)))
        elif orders.watermark >= k:
            if orders.sampling is not None and orders.stop_at is None:
                passing = self.peers.examine(k, orders.sampling, now_s)
                if passing is not MAY_BEGIN:
                    self.wake_at_s = self.peers.wake_at_s
                    return Step.ASK if passing is Passing.ASK else WAIT
            self._enter(PULL)
            self._given, self.term = True, self._newest_term()
            return STEPS[PULL]
        return WAIT

    def _await_share(self, now_s: float) -> Step:
        orders, k = self.orders, self.iteration
        assert orders is not None
        assert self.wake_at_s is not None
        if orders.stop_at is not None and orders.stop_at <= k:
            self._enter(BOUNDARY)
            return self._await_grant(now_s)
        if orders.share_until < k and now_s < self.wake_at_s:
            return WAIT
        self.task = self._schedule.task(k)
        self._enter(COMPUTE)
        return COMPUTE_STEP

    def _enter(self, phase: Phase) -> None:
        self.phase, self._given, self.wake_at_s = phase, False, None

    def _skip_to(self, iteration: int) -> None:
        self.attempt += 1
        self.iteration = iteration
        self._enter(BOUNDARY)

    def _newest_term(self) -> Term:
        assert self.orders is not None
        return self.orders.incarnation, self.orders.generation

    def _of_generation(self, make: Callable[..., Due]) -> Build:
        assert self.orders is not None
        return partial(_numbered, make, self.orders.generation)

    def _unexpected(self, *phases: Phase) -> UnexpectedStep:
        return UnexpectedStep(
            f"iteration {self.iteration}: a worker in phase {self.phase.name} got a step that only one in"
            f" {' or '.join(phase.name for phase in phases)} can complete; compare `attempt` before reporting"
            " work that newer orders may have cancelled"
        )


def _numbered(make: Callable[..., Due], generation: int, number: int) -> Due:
    return make(number=number, generation=generation)


def _finished(iteration: int, model_saved: bool, number: int) -> WorkerFinished:
    return WorkerFinished(number=number, iteration=iteration, model_saved=model_saved)
