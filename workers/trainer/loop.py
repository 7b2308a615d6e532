"""The training loop of one worker, top to bottom: orders, pull, compute, push, report. It reports, it never decides.

Iteration ``k`` pulls version ``k``, which the servers hold back until iteration ``k - 1`` is closed, and pushes its
sum of gradients to iteration ``k``.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress

from controlplane.protocol.messages import IterationReport, WorkerFinished, WorkerHello
from controlplane.protocol.orders import Orders, ProcessOrder
from workers.emulation import Pace
from workers.link import WorkerLink
from workers.resources import Machine
from workers.trainer.clock import IterationClock, Part
from workers.trainer.evaluation import Evaluator
from workers.trainer.exchange import Exchange, Round
from workers.trainer.sampler import PermutationSampler, first_position
from workers.trainer.schedule import Schedule
from workers.transport.errors import Stopped
from workers.transport.frames import Header, Op
from workers.transport.handshake import Peer
from workers.workloads.catalogue import load_workload
from workers.workloads.shape import Update, Vector, named_arrays

SaveModel = Callable[[Mapping[str, Vector]], None]


def train(order: ProcessOrder, link: WorkerLink, save_model: SaveModel) -> None:
    """Train until the orders say stop, or ``link.stopping``.

    Raises:
        SpecError: if the job names a workload that does not exist here.
        TransportError: if a server stays away, or refuses this worker.
    """
    with suppress(Stopped), Exchange(Peer(order.index, order.instance), link.stopping) as servers:
        Trainer(order, link, servers, save_model).run()


class Trainer:
    """One life of one worker."""

    def __init__(self, order: ProcessOrder, link: WorkerLink, servers: Exchange, save_model: SaveModel) -> None:
        self.spec, self.link, self.servers, self.save_model = order.spec, link, servers, save_model
        self.workload = load_workload(order.spec.workload)
        self.replica = self.workload.replica()
        self.sampler = PermutationSampler(seed=order.spec.seed, sample_count=self.workload.sample_count)
        self.machine = Machine()
        self.schedule = Schedule()
        self.pace = Pace(order.emulate, rest=link.stopping.wait)

    def run(self) -> None:
        """Iterate from the first orders to the last, then finish."""
        self.link.say(self._hello)
        iteration = self._await(lambda orders: True).share_from
        self.clock = IterationClock()
        with Evaluator(self.workload, self.link.say) as evaluator:
            while not _ends(self._released(iteration), iteration):
                self._pull(iteration)
                orders = self._share(iteration)
                newest = self._newest()
                if _ends(newest, iteration):
                    break
                if newest.evaluator and iteration % self.spec.evaluate.every == 0:
                    evaluator.offer(iteration, self.replica.parameters)
                position = first_position(orders, iteration)
                update, overran = self._compute(position, orders.share)
                generation = self._push(iteration, update)
                self._report(generation, iteration, position, update, overran)
                iteration += 1
            self._finish(iteration, evaluator)

    def _hello(self, number: int) -> WorkerHello:
        return WorkerHello(
            number=number,
            parameter_count=self.replica.parameters.size,
            sample_count=self.workload.sample_count,
        )

    def _released(self, iteration: int) -> Orders:
        """Orders that let this worker start ``iteration``, or end before it."""
        orders = self._await(lambda orders: orders.watermark >= iteration or _ends(orders, iteration))
        if orders.placement_version > self.servers.placement_version:
            self._adopt_placement(orders.placement_version)
        self.clock.lap(Part.WAITING)
        return orders

    def _pull(self, iteration: int, *, or_later: bool = False) -> None:
        """Version ``iteration`` of the parameters, as soon as the servers have it."""
        while True:
            orders = self._newest()
            outcome = self.servers.pull(self.replica.parameters, iteration)
            self.clock.lap(Part.PULL, held_s=outcome.held_s)
            if not outcome.moved and (or_later or not outcome.stale):
                return
            self._refresh(orders, outcome)

    def _share(self, iteration: int) -> Orders:
        """The orders that say which samples to take: awaited for a while, else those that there are."""
        timeout_s = self._newest().decision_timeout_s
        decided = self.link.await_orders(lambda o: o.share_until >= iteration or _ends(o, iteration), timeout_s)
        self.clock.lap_decision(decided.held_s if decided else 0.0)
        self._newest()
        return self.schedule.speaking_of(iteration)

    def _compute(self, position: int, share: int) -> tuple[Update, bool]:
        """The sum of gradients over this worker's samples; and whether an emulated machine was too slow."""
        self.pace.begin()
        update = self.replica.update(self.sampler.samples(position, share))
        overran = self.pace.finish(share)
        self.clock.lap(Part.COMPUTE)
        return update, overran

    def _push(self, iteration: int, update: Update) -> int:
        """Push until every block counts; the generation under which the last one did."""
        pending = self.servers.blocks
        while True:
            orders = self._newest()
            stamp = Header(
                op=Op.PUSH,
                incarnation=orders.incarnation,
                generation=orders.generation,
                iteration=iteration,
                samples=update.samples,
            )
            outcome = self.servers.push(self.replica.gradient, pending, stamp)
            self.clock.lap(Part.PUSH, held_s=outcome.held_s)
            if not pending:
                return orders.generation
            self._refresh(orders, outcome)

    def _report(self, generation: int, iteration: int, position: int, update: Update, overran: bool) -> None:
        parts = self.clock.finish()
        load = self.machine.load()
        self.link.say(
            lambda number: IterationReport(
                number=number,
                generation=generation,
                iteration=iteration,
                samples=update.samples,
                position=position,
                loss=update.loss,
                cpu=load.cpu,
                memory=load.memory,
                overran=overran,
                **parts,
            )
        )

    def _finish(self, iteration: int, evaluator: Evaluator) -> None:
        """The evaluator scores and saves the final version; everybody says that they are done."""
        orders = self._newest()
        if orders.evaluator:
            final = min(iteration, orders.stop_at if orders.stop_at is not None else iteration)
            self._pull(final, or_later=True)
            evaluator.finish(final, self.replica.parameters)
            self.save_model(named_arrays(self.workload, self.replica.parameters))
        self.link.say(lambda n: WorkerFinished(number=n, iteration=iteration, model_saved=orders.evaluator))

    def _refresh(self, orders: Orders, outcome: Round) -> None:
        """A server knows better than ``orders``: wait for the placement or the generation that it has."""
        if outcome.moved:
            self._adopt_placement(self.servers.placement_version + 1)
        else:
            term = (orders.incarnation, orders.generation)
            self._await(lambda newer: (newer.incarnation, newer.generation) > term)
        self.clock.lap(Part.WAITING)

    def _adopt_placement(self, version: int) -> None:
        placement = self.link.await_placement(version)
        if placement is None:
            raise Stopped("asked to end")
        self.servers.adopt(placement)

    def _await(self, accept: Callable[[Orders], bool]) -> Orders:
        orders = self.link.await_orders(accept)
        if orders is None:
            raise Stopped("asked to end")
        self.schedule.hear(orders)
        return orders

    def _newest(self) -> Orders:
        return self._await(lambda orders: True)


def _ends(orders: Orders, iteration: int) -> bool:
    """Whether ``iteration`` is not to be started."""
    return orders.stop_at is not None and orders.stop_at <= iteration
