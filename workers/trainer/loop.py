"""The training loop of one worker, top to bottom: orders, pull, compute, push, report. It reports, it never decides.

In synchronous modes iteration ``k`` pulls version ``k``, which the servers hold back until iteration ``k - 1`` is
closed, and pushes its sum of gradients to iteration ``k``. In asynchronous ones it pulls what there is.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from copy import copy
from functools import partial

from controlplane.protocol import RELEASE
from controlplane.protocol.messages import Computed, Held, IterationReport, WorkerFinished, WorkerHello
from controlplane.protocol.orders import Orders, ProcessOrder
from workers.accelerator import Gauge, gauge_of
from workers.emulation import Pace
from workers.link import WorkerLink
from workers.resources import Machine
from workers.trainer.aggregating import AggregatingExchange
from workers.trainer.clock import IterationClock, Part
from workers.trainer.computing import Computing, Skipped, without_spoilt
from workers.trainer.copies import Copies
from workers.trainer.evaluation import Evaluator
from workers.trainer.exchange import Exchange
from workers.trainer.keeper import Keeper
from workers.trainer.local_steps import make_replica
from workers.trainer.reduction import Reduction
from workers.trainer.refilling import Refiller
from workers.trainer.round import Round
from workers.trainer.sampler import make_sampler
from workers.trainer.schedule import Schedule, Task, task
from workers.transport.errors import Stopped
from workers.transport.frames import Header, Op
from workers.transport.handshake import Peer
from workers.workloads.catalogue import load_workload
from workers.workloads.local import NOWHERE, Local
from workers.workloads.memory import ceiling_of
from workers.workloads.shape import Telling, Update, Vector, Workload, named_arrays

SaveModel = Callable[[Mapping[str, Vector]], None]


def train(order: ProcessOrder, link: WorkerLink, save_model: SaveModel, local: Local = NOWHERE) -> None:
    """Train until the orders say stop, or ``link.stopping``.

    Raises:
        SpecError: if the job names a workload that does not exist here.
        DataError: if its data are missing here, or not what they are called.
        TransportError: if a server stays away, or refuses this worker.
    """
    workload = load_workload(order.spec.workload, local)
    keeper = Keeper(order, link, workload, local) if order.spec.workers_hold else None
    with suppress(Stopped), keeper or nullcontext(), _parameters(order, link, keeper, local) as servers:
        Trainer(order, link, workload, servers, save_model, gauge_of(local.device), keeper).run()


def _parameters(order: ProcessOrder, link: WorkerLink, own: Keeper | None, local: Local) -> Exchange | Reduction:
    """Where the parameters are: at servers, or at the workers themselves."""
    peer, spec = Peer(order.index, order.instance), order.spec
    if own is not None and spec.reduces:
        return Reduction(order.index, link, own.held, spec, sizes=own.sizes, host=local.host, device=local.device)
    if own is not None:
        return AggregatingExchange(peer, link.stopping, own.held, spec, lambda: link.in_reach)
    guards = spec.elastic.restarts > 0
    copies = Copies(lambda block: guards and block % spec.workers == order.index)
    return Exchange(peer, link.stopping, link.placement, copies, lambda: link.in_reach)


class Trainer:
    """One life of one worker."""

    def __init__(
        self,
        order: ProcessOrder,
        link: WorkerLink,
        workload: Workload,
        servers: Exchange | Reduction,
        save_model: SaveModel,
        gauge: Gauge,
        keeper: Keeper | None = None,
    ) -> None:
        self.gauge, self._keeper = gauge, keeper
        self._found, self._skipped = keeper.found if keeper is not None else ([], [])
        self.spec, self.link, self.servers, self.save_model = order.spec, link, servers, save_model
        self.workload = workload
        self.replica = make_replica(self.workload, order.spec)
        self.sampler = make_sampler(self.workload, order.spec, order.index)
        self.pace = Pace(order.emulate, rest=link.stopping.wait)
        self.computing = Computing(self.replica, self.sampler, link, self.pace, seed=(order.spec.seed, order.index))
        self._gives_early = False
        """Whether parts of an update are on their way to the other workers before it is complete."""
        if isinstance(servers, Reduction) and isinstance(self.replica, Telling):
            self._gives_early = True
            self.replica.tell_progress(servers.offer)
            self.computing.announce_to(servers.begin)
        self.machine = Machine()
        self.schedule = Schedule()
        self._peer = Peer(order.index, order.instance)
        self._still = threading.Lock()
        self._last: tuple[int, int] | None = None
        """The iteration whose update ``computing`` has, and of how many samples it is."""
        self._owed: set[int] = set()
        """Blocks that began again since it was pushed, and may lack it."""

    def run(self) -> None:
        """Iterate from the first orders to the last, then finish."""
        self.link.say(self._hello)
        first = self._await(lambda orders: True)
        self._restore(first)
        iteration = first.share_from
        self.clock = IterationClock()
        self._watch_for_lost_servers()
        with Evaluator(self.workload, self.link.say) as evaluator:
            while (begun := self._released(iteration)) is not None:
                try:
                    self._iterate(begun, evaluator)
                except Skipped:
                    self._last = None
                iteration = begun + 1
            self._finish(iteration, evaluator)

    def _restore(self, orders: Orders) -> None:
        """Begin with the checkpoint that the orders name, if any.

        Raises:
            Stopped: if it cannot be used: everybody begins anew then, with another.
        """
        if self._keeper is not None and orders.restore is not None and not self._keeper.begin(orders.restore):
            self.link.stopping.wait()
            raise Stopped("asked to end")

    def _watch_for_lost_servers(self) -> None:
        if isinstance(self.servers, Exchange) and self.servers.copies is not None:
            Refiller(self.link, self.servers, self.servers.copies, self.replica.parameters, self._peer, self._still)

    def _iterate(self, iteration: int, evaluator: Evaluator) -> None:
        """One iteration, unless the end comes first.

        Raises:
            Skipped: if it need not be finished.
        """
        self._pull(iteration)
        given = self._task(iteration)
        newest = self._current(iteration)
        if _ends(newest, iteration):
            raise Skipped
        if newest.evaluator and iteration % self.spec.evaluate.every == 0:
            evaluator.offer(iteration, self.replica.parameters)
        self._last = None
        self._prefetch(iteration, given)
        with self._still if self.spec.federated else nullcontext():
            update, overran = self.computing.run(iteration, given)
        update, spoilt = without_spoilt(update, self.computing.gradient, is_given_away=self._gives_early)
        self.clock.lap(Part.COMPUTE)
        self._last = (iteration, update.samples)
        self._announce(iteration, update)
        generation = self._push(iteration, update)
        self._report(generation, iteration, given.position, update, overran=overran, spoilt=spoilt)

    def _hello(self, number: int) -> WorkerHello:
        host, port = self.servers.address
        return WorkerHello(
            host=host,
            port=port,
            release=RELEASE,
            number=number,
            parameter_count=self.replica.parameters.size,
            sample_count=self.workload.sample_count,
            own_samples=self.sampler.own_samples,
            found=self._found,
            skipped=self._skipped,
            initial=self._keeper.initial if self._keeper is not None else "",
        )

    def _released(self, iteration: int) -> int | None:
        """Which iteration to start, from ``iteration`` on, once there is leave to; None: the end is before it."""
        may_stand = self.servers.may_stand
        orders = self._await(partial(_concerns, iteration, None, may_stand))
        while not _goes_on(orders, iteration, may_stand):
            self._say_held(orders, max(iteration, orders.skip_to))
            orders = self._await(partial(_concerns, iteration, orders, may_stand))
        begun = max(iteration, orders.skip_to)
        if orders.placement_version > self.servers.placement_version:
            self._adopt_placement(orders.placement_version)
            self._push_again()
        if isinstance(self.servers, Exchange):
            self.servers.probe(orders.probes, orders.probe_round)
        self.clock.lap(Part.WAITING)
        return None if _ends(orders, begun) else begun

    def _say_held(self, orders: Orders, iteration: int) -> None:
        self.link.say(
            lambda number: Held(
                number=number, generation=orders.generation, iteration=iteration, sequence=orders.sequence
            )
        )

    def _pull(self, iteration: int) -> None:
        """The parameters for ``iteration``, as soon as the servers have them."""
        while True:
            orders = self._current(iteration)
            outcome = self.servers.pull(self.replica.parameters, _stamp(Op.PULL, orders, iteration))
            self.clock.lap(Part.PULL, held_s=outcome.held_s)
            if not outcome.moved and not outcome.stale:
                return
            self._refresh(orders, outcome, iteration)
            self._push_again()

    def _task(self, iteration: int) -> Task:
        """Which samples to take: as newer orders say, which are awaited for a while, else by those that there are."""
        timeout_s = self._newest().decision_timeout_s
        decided = self.link.await_orders(lambda o: o.share_until >= iteration or _ends(o, iteration), timeout_s)
        self.clock.lap_decision(decided.held_s if decided else 0.0)
        self._newest()
        return task(self.schedule.speaking_of(iteration), iteration, self.sampler)

    def _prefetch(self, iteration: int, given: Task) -> None:
        """Have what comes after ``given`` taken ahead, by what is ordered now; later orders may still change it."""
        if not (ahead := self.spec.workload.prefetch):
            return
        sampler, tasks = copy(self.sampler), [given]
        for coming in range(iteration + 1, iteration + 1 + ahead):
            orders = self.schedule.coming(coming)
            if not _ends(orders, coming):
                tasks.append(task(orders, coming, sampler))
        self.computing.prefetch(tasks)

    def _announce(self, iteration: int, update: Update) -> None:
        orders = self._current(iteration)
        if orders.announce:
            generation, samples = orders.generation, update.samples
            self.link.say(
                lambda number: Computed(number=number, generation=generation, iteration=iteration, samples=samples)
            )

    def _push(self, iteration: int, update: Update) -> int:
        """Push until every block counts; the generation under which the last one did."""
        pending, is_late = self.servers.blocks, False
        while True:
            pending |= self._owed
            self._owed.clear()
            orders = self._current(iteration)
            stamp = _stamp(Op.PUSH, orders, iteration, samples=update.samples)
            outcome = self.servers.push(self.computing.gradient, pending, stamp)
            self.clock.lap(Part.PUSH, held_s=outcome.held_s)
            is_late |= outcome.late
            if not pending and is_late:
                raise Skipped
            if not pending:
                return orders.generation
            self._refresh(orders, outcome, iteration)

    def _push_again(self) -> None:
        """Blocks that began again with a copy may lack the last update; a server that has it takes it only once."""
        while self._owed and self._last is not None:
            iteration, samples = self._last
            orders = self._newest()
            if orders.skip_to > iteration:
                break
            outcome = self.servers.push(
                self.computing.gradient, self._owed, _stamp(Op.PUSH, orders, iteration, samples=samples)
            )
            self.clock.lap(Part.WAITING)
            if self._owed:
                self._refresh(orders, outcome, iteration)
        self._owed.clear()

    def _report(
        self, generation: int, iteration: int, position: int, update: Update, *, overran: bool, spoilt: str
    ) -> None:
        parts, exchanges = self.clock.finish(), self.servers.ledger.take()
        blocks = self.servers.ledger.take_blocks()
        moving_s = min(self.servers.ledger.take_moving_s(), parts[Part.WAITING.value])
        load = self.pace.load(self.gauge.load(self.machine.load()))
        ceiling = ceiling_of(self.replica)
        self.link.say(
            lambda number: IterationReport(
                number=number,
                generation=generation,
                iteration=iteration,
                samples=update.samples,
                position=position,
                loss=update.loss,
                spoilt=spoilt,
                cpu=load.cpu,
                memory=load.memory,
                overran=overran,
                ceiling=ceiling,
                exchanges=exchanges,
                blocks=blocks,
                moving_s=moving_s,
                **parts,
            )
        )

    def _finish(self, iteration: int, evaluator: Evaluator) -> None:
        """The evaluator scores and saves the final version; everybody says that they are done."""
        orders = self._await(lambda orders: orders.final or not orders.evaluator)
        if orders.evaluator:
            final = min(iteration, orders.stop_at if orders.stop_at is not None else iteration)
            self._pull_final(final)
            evaluator.finish(final, self.replica.parameters)
            self.save_model(named_arrays(self.workload, self.replica.parameters))
        if self._keeper is not None:
            self._keeper.settle()
        self.link.say(lambda n: WorkerFinished(number=n, iteration=iteration, model_saved=orders.evaluator))

    def _pull_final(self, version: int) -> None:
        """Version ``version`` of the parameters, or a later one."""
        while self.servers.pull(self.replica.parameters, _stamp(Op.PULL, self._newest(), version)).moved:
            self._adopt_placement(self.servers.placement_version + 1)
            self._push_again()

    def _refresh(self, orders: Orders, outcome: Round, iteration: int) -> None:
        """A server knows better than ``orders``: wait for the placement, generation or leave to skip that it has."""
        if outcome.moved:
            self._adopt_placement(self.servers.placement_version + 1)
        else:
            self._await(lambda newer: _term(newer) > _term(orders) or newer.skip_to > iteration)
        self.clock.lap(Part.WAITING)

    def _adopt_placement(self, version: int) -> None:
        with self.servers.ledger.moving():
            placement = self.link.await_placement(version)
        if placement is None:
            raise Stopped("asked to end")
        self._owed |= self.servers.adopt(placement)

    def _await(self, accept: Callable[[Orders], bool]) -> Orders:
        orders = self.link.await_orders(accept)
        if orders is None:
            raise Stopped("asked to end")
        self.schedule.hear(orders)
        if self._keeper is not None:
            self._keeper.follow(orders)
        return orders

    def _newest(self) -> Orders:
        return self._await(lambda orders: True)

    def _current(self, iteration: int) -> Orders:
        """The newest orders, if they still ask for ``iteration``.

        Raises:
            Skipped: if it is not owed any more.
        """
        orders = self._newest()
        if orders.skip_to > iteration:
            raise Skipped
        return orders


def _stamp(op: Op, orders: Orders, iteration: int, *, samples: int = 0) -> Header:
    return Header(
        op=op, incarnation=orders.incarnation, generation=orders.generation, iteration=iteration, samples=samples
    )


def _term(orders: Orders) -> tuple[int, int]:
    return orders.incarnation, orders.generation


def _ends(orders: Orders, iteration: int) -> bool:
    """Whether ``iteration`` is not to be started."""
    return orders.stop_at is not None and orders.stop_at <= iteration


def _concerns(iteration: int, known: Orders | None, may_stand: bool, orders: Orders) -> bool:
    """Whether ``orders``, newer than those ``known``, have something to say to who stands before ``iteration``."""
    is_held = orders.hold and may_stand
    is_newer = known is None or orders.rank_in_time > known.rank_in_time
    return is_newer and (is_held or _goes_on(orders, iteration, may_stand))


def _goes_on(orders: Orders, iteration: int, may_stand: bool) -> bool:
    """Whether the worker may start ``iteration``, or the one that it is to skip to, or may end before it."""
    begun = max(iteration, orders.skip_to)
    return _ends(orders, begun) or (orders.watermark >= begun and not (orders.hold and may_stand))
