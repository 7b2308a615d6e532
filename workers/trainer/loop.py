"""The training loop of one worker, from top to bottom: orders, pull, compute, push, report. It makes no decisions.

In synchronous modes iteration ``k`` pulls version ``k``, which the servers delay until iteration ``k - 1`` is complete,
and pushes its sum of gradients to iteration ``k``. In asynchronous modes it pulls the current version.
"""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from controlplane.protocol import RELEASE
from controlplane.protocol.messages import IterationReport, WorkerHello
from controlplane.protocol.orders import Orders, ProcessOrder
from controlplane.protocol.worker import Phase, Step, WorkerMachine
from workers.accelerator import Gauge, gauge_of
from workers.emulation import Pace
from workers.link import WorkerLink
from workers.peers.neighbours import Neighbours
from workers.readings import Readings
from workers.trainer.aggregating import AggregatingExchange
from workers.trainer.checkpointing import Keeper
from workers.trainer.clock import IterationClock, Part
from workers.trainer.computing import Computing, Skipped, without_spoilt
from workers.trainer.copies import Copies
from workers.trainer.evaluation import Evaluator
from workers.trainer.exchange import Exchange
from workers.trainer.local_steps import make_replica
from workers.trainer.reduction import Reduction, check_reduces
from workers.trainer.refilling import Refiller
from workers.trainer.round import Round
from workers.trainer.sampler import Work, make_sampler, work_of
from workers.transport.encryption import Encryption, Identity
from workers.transport.errors import Stopped
from workers.transport.frames import Header, Op
from workers.transport.handshake import Peer
from workers.workloads.catalogue import load_workload
from workers.workloads.local import NOWHERE, Local
from workers.workloads.memory import ceiling_of
from workers.workloads.shape import ReportsProgress, Update, Vector, Workload, loading_s_of, named_arrays
from workers.workloads.tensors import sums_of, values_of
from workers.workloads.trained import admit_factories, check_groups

SaveModel = Callable[[Mapping[str, Vector]], None]


def train(order: ProcessOrder, link: WorkerLink, save_model: SaveModel, local: Local = NOWHERE) -> None:
    """Train until orders to stop, or ``link.stopping``.

    Raises:
        SpecError: if the job names an unknown workload.
        DataError: if its data are missing here, or have another format.
        TransportError: if a server stays unreachable, or refuses this worker.
    """
    admit_factories(order.spec, local)
    workload = load_workload(order.spec.workload, local)
    check_groups(order.spec, workload.layout)
    keeper = Keeper(order, link, workload, local) if order.spec.workers_hold else None
    with suppress(Stopped), keeper or nullcontext(), _parameters(order, link, keeper, local) as servers:
        Trainer(order, link, workload, servers, save_model, gauge_of(local.device), keeper, local).run()


def _parameters(order: ProcessOrder, link: WorkerLink, own: Keeper | None, local: Local) -> Exchange | Reduction:
    """The owner of the parameters: servers, or the workers themselves."""
    peer, spec = Peer(order.index, order.instance), order.spec
    encryption = Encryption(Identity.of(order), allows_plain=local.insecure)
    emulated = order.emulate.link if order.emulate is not None else None
    if own is not None and spec.reduces:
        check_reduces(spec, local)
        return Reduction(
            *(order.index, link, own.held, spec),
            sizes=own.sizes,
            host=local.host,
            device=local.device,
            trained=own.trained,
        )
    if own is not None:
        return AggregatingExchange(peer, link.stopping, own.held, spec, lambda: link.in_reach, encryption, emulated)
    guards = spec.elastic.restarts > 0
    copies = Copies(lambda block: guards and block % spec.workers == order.index)
    return Exchange(peer, link.stopping, link.placement, copies, lambda: link.in_reach, encryption, emulated)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The result of an iteration's computation."""

    update: Update
    position: int
    """Offset of its samples in the job's permutations."""
    overran: bool
    """Whether an emulated machine was too slow."""
    spoilt: str
    """The loss, if it is not finite and would corrupt the parameters."""


class Trainer:
    """One worker instance: executes the steps of its ``WorkerMachine``."""

    def __init__(
        self,
        order: ProcessOrder,
        link: WorkerLink,
        workload: Workload,
        servers: Exchange | Reduction,
        save_model: SaveModel,
        gauge: Gauge,
        keeper: Keeper | None = None,
        local: Local = NOWHERE,
    ) -> None:
        self._keeper = keeper
        self._found, self._skipped = keeper.found if keeper is not None else ([], [])
        self.spec, self.link, self.servers, self.save_model = order.spec, link, servers, save_model
        self.workload = workload
        self.replica = make_replica(self.workload, order.spec)
        self.sampler = make_sampler(self.workload, order.spec, order.index)
        self.pace = Pace(order.emulate, rest=link.stopping.wait)
        self.worker = WorkerMachine(link.say, order.index)
        self._neighbours = Neighbours(order, self.worker, local) if order.spec.asks_peers else None
        self._parameters, sums = self._memory()
        seed = (order.spec.seed, order.index)
        self.computing = Computing(self.replica, self.sampler, self.worker, link, self.pace, sums=sums, seed=seed)
        self._shares_early = False
        """Whether parts of an update are sent to the other workers before it is complete."""
        if isinstance(servers, Reduction) and isinstance(self.replica, ReportsProgress):
            self._shares_early = True
            self.replica.report_progress(servers.offer)
            self.computing.announce_to(servers.begin)
        self.readings = Readings(gauge, self.pace)
        self._attempt = 0
        """The attempt of ``worker`` when the current work began."""
        self._peer = Peer(order.index, order.instance)
        self._still = threading.Lock()
        self._last: tuple[int, int] | None = None
        """The iteration and number of samples of the update in ``computing``."""
        self._unacknowledged: set[int] = set()
        """Blocks that were restored since it was pushed, and may lack it."""
        self._begun = (-1, -1)
        """The attempt and iteration whose parameters were requested last."""
        self._done: Done
        self._pending: set[int] = set()
        """Blocks in which the update of this iteration does not count yet."""
        self._is_late = False
        """Whether others completed the iteration of one of its blocks."""

    def run(self) -> None:
        """Run iterations from the first orders to the last, then finish."""
        with self._neighbours or nullcontext():
            self._run()

    def _run(self) -> None:
        self.link.say(self._hello)
        self._restore(self._await(lambda orders: True))
        self.clock = IterationClock()
        self._watch_for_lost_servers()
        with Evaluator(self.workload, self.link.say) as evaluator:
            while (step := self._next()) is not Step.FINISH:
                try:
                    if step is Step.PULL:
                        self._pull()
                    elif step is Step.COMPUTE:
                        self._compute(evaluator)
                    elif step is Step.PUSH:
                        self._push()
                except Skipped:
                    self._last = None
            self._finish(evaluator)

    def _memory(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The memory of parameters and gradient sums: on the host with servers, else on the computing device."""
        if isinstance(self.servers, Reduction):
            return values_of(self.replica), sums_of(self.replica)
        return torch.from_numpy(self.replica.parameters), torch.from_numpy(self.replica.gradient)

    def _next(self) -> Step:
        """Wait for the next step according to the newest orders."""
        worker, was_stale = self.worker, self.worker.phase is Phase.STALE
        while True:
            known, self.worker.can_hold = self._newest().rank_in_time, self.servers.may_stop
            if self._neighbours is not None:
                self._neighbours.follow(self.link.placement())
            step, self._attempt = worker.next(time.monotonic()), worker.attempt
            if step is Step.ASK and self._neighbours is not None:
                self._neighbours.ask(time.monotonic)
            elif step is not Step.WAIT:
                break
            else:
                self._await_newer(known, worker.wake_at_s)
        if was_stale:
            self.clock.lap(Part.WAITING)
        return step

    def _restore(self, orders: Orders) -> None:
        """Restore the checkpoint that the orders name, if any.

        Raises:
            Stopped: if it cannot be used: all processes then restart with another one.
        """
        if self._keeper is not None and orders.restore is not None and not self._keeper.begin(orders.restore):
            self.link.stopping.wait()
            raise Stopped("asked to end")

    def _watch_for_lost_servers(self) -> None:
        if isinstance(self.servers, Exchange) and self.servers.copies is not None:
            Refiller(self.link, self.servers, self.servers.copies, self.replica.parameters, self._still)

    def _hello(self, number: int) -> WorkerHello:
        host, port = self._neighbours.address if self._neighbours is not None else self.servers.address
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

    def _pull(self) -> None:
        """Pull the parameters for the iteration, as soon as the servers have them."""
        begun = self.worker.attempt, self.worker.iteration
        is_first, self._begun = begun != self._begun, begun
        orders = self._newest()
        if is_first and orders.placement_version > self.servers.placement_version:
            self._adopt_placement(orders.placement_version)
        self._push_last_again()
        if is_first:
            if isinstance(self.servers, Exchange):
                self.servers.probe(orders.probes, orders.probe_round)
            self.clock.lap(Part.WAITING)
        self._check_not_cancelled()
        outcome = self.servers.pull(self._parameters, self._stamp(Op.PULL))
        self.clock.lap(Part.PULL, held_s=outcome.held_s)
        if outcome.moved or outcome.stale:
            self._retry(outcome)
        else:
            self._check_not_cancelled()
            self.worker.pulled(time.monotonic())

    def _compute(self, evaluator: Evaluator) -> None:
        """Compute the update of this worker's share, in the memory of ``computing``."""
        orders, task = self.worker.orders, self.worker.task
        assert orders is not None
        assert task is not None
        k = task.iteration
        self.clock.lap_decision(orders.held_s if orders.share_until >= k else 0.0)
        if orders.evaluator and k % self.spec.evaluate.every == 0:
            evaluator.offer(k, self._parameters)
        work = work_of(task, self.sampler)
        self._last = None
        self._prefetch(k, work)
        loaded_s = loading_s_of(self.replica) or 0.0
        with self._still if self.spec.federated else nullcontext():
            update, overran = self.computing.run(k, work)
        update, spoilt = without_spoilt(update, self.computing.gradient, is_shared=self._shares_early)
        self.clock.lap_computing((loading_s_of(self.replica) or 0.0) - loaded_s)
        self._last = (k, update.samples)
        self._done = Done(update=update, position=work.position, overran=overran, spoilt=spoilt)
        self._pending, self._is_late = self.servers.blocks, False
        self._check_not_cancelled()
        self.worker.computed(update.samples)

    def _prefetch(self, iteration: int, given: Work) -> None:
        """Prefetch the samples after ``given`` according to the current orders; later orders may still change them."""
        if not (ahead := self.spec.workload.prefetch):
            return
        sampler = copy(self.sampler)
        sampler.put_back(max(0, len(given.samples) - given.share))
        coming = [self.worker.coming(iteration + 1 + more) for more in range(ahead)]
        self.computing.prefetch([given, *(work_of(task, sampler) for task in coming if task is not None)])

    def _push(self) -> None:
        """Push the update to every block in which it does not count yet; once it counts in all, report."""
        self._pending |= self._unacknowledged
        self._unacknowledged.clear()
        stamp = self._stamp(Op.PUSH, samples=self._done.update.samples)
        outcome = self.servers.push(self.computing.gradient, self._pending, stamp)
        self.clock.lap(Part.PUSH, held_s=outcome.held_s)
        self._is_late |= outcome.late
        if self._pending:
            self._check_not_cancelled()
            self._retry(outcome)
        elif self._is_late:
            self.worker.missed()
            raise Skipped
        else:
            self._report(self._done)
            self.worker.pushed()

    def _retry(self, outcome: Round) -> None:
        """A server has newer information than the orders of this pull or push: another placement, or newer orders."""
        if outcome.moved:
            self._adopt_placement(self.servers.placement_version + 1)
            self.clock.lap(Part.WAITING)
            self._check_not_cancelled()
            self.worker.again()
        else:
            self.worker.refused()

    def _push_last_again(self) -> None:
        """Restored blocks may lack the last update; a server that has it counts it only once."""
        while self._unacknowledged and self._last is not None:
            iteration, samples = self._last
            orders = self._newest()
            if orders.skip_to > iteration:
                break
            stamp = Header(
                op=Op.PUSH,
                incarnation=orders.incarnation,
                generation=orders.generation,
                iteration=iteration,
                samples=samples,
            )
            outcome = self.servers.push(self.computing.gradient, self._unacknowledged, stamp)
            self.clock.lap(Part.WAITING)
            if self._unacknowledged and outcome.moved:
                self._adopt_placement(self.servers.placement_version + 1)
            elif self._unacknowledged:
                self._await(partial(_supersedes, orders, iteration))
            self.clock.lap(Part.WAITING)
        self._unacknowledged.clear()

    def _report(self, done: Done) -> None:
        (_, generation), iteration, update = self.worker.term, self.worker.iteration, done.update
        parts: dict[str, Any] = self.clock.finish()
        exchanges = self.servers.ledger.take()
        blocks = self.servers.ledger.take_blocks()
        moving_s = min(self.servers.ledger.take_moving_s(), parts[Part.WAITING.value])
        noise = self.servers.noise.samples if isinstance(self.servers, Reduction) else None
        readings = self.readings.take(noise_scale=noise)
        if loading_s_of(self.replica) is None:
            del parts[Part.DATA.value]
        ceiling = ceiling_of(self.replica)
        sampled, questions = self.worker.peers.passed_by(iteration)
        self.link.say(
            lambda number: IterationReport(
                number=number,
                generation=generation,
                iteration=iteration,
                samples=update.samples,
                position=done.position,
                loss=update.loss,
                spoilt=done.spoilt,
                overran=done.overran,
                ceiling=ceiling,
                exchanges=exchanges,
                blocks=blocks,
                moving_s=moving_s,
                sampled=sampled,
                questions=questions,
                unanswered=self.worker.peers.unanswered(iteration),
                logged={},
                **parts,
                **readings,
            )
        )

    def _finish(self, evaluator: Evaluator) -> None:
        """The evaluating worker evaluates and uploads the final version; every worker reports that it is done."""
        orders = self._await(lambda orders: orders.final or not orders.evaluator)
        if orders.evaluator:
            iteration = self.worker.iteration
            final = min(iteration, orders.stop_at if orders.stop_at is not None else iteration)
            self._pull_final(final)
            evaluator.finish(final, self._parameters)
            self.save_model(named_arrays(self.workload, self._parameters.cpu().numpy()))
        if self._keeper is not None:
            self._keeper.settle()
        self.worker.finished(model_saved=orders.evaluator)

    def _pull_final(self, version: int) -> None:
        """Pull version ``version`` of the parameters, or a later one."""
        while True:
            orders = self._newest()
            stamp = Header(op=Op.PULL, incarnation=orders.incarnation, generation=orders.generation, iteration=version)
            if not self.servers.pull(self._parameters, stamp).moved:
                return
            self._adopt_placement(self.servers.placement_version + 1)
            self._push_last_again()

    def _adopt_placement(self, version: int) -> None:
        with self.servers.ledger.moving():
            placement = self.link.await_placement(version)
        if placement is None:
            raise Stopped("asked to end")
        self._unacknowledged |= self.servers.adopt(placement)

    def _await(self, accept: Callable[[Orders], bool]) -> Orders:
        orders = self.link.await_orders(accept)
        if orders is None:
            raise Stopped("asked to end")
        self.worker.receive(orders)
        if self._keeper is not None:
            self._keeper.follow(orders)
        return orders

    def _newest(self) -> Orders:
        return self._await(lambda orders: True)

    def _await_newer(self, known: tuple[int, int, int], until_s: float | None) -> None:
        """Wait for orders newer than these, or until that time."""
        timeout_s = None if until_s is None else max(0.0, until_s - time.monotonic())
        self.link.await_orders(lambda orders: orders.rank_in_time > known, timeout_s)
        if self.link.stopping.is_set():
            raise Stopped("asked to end")

    def _check_not_cancelled(self) -> None:
        """Check the newest orders.

        Raises:
            Skipped: if the work in progress is no longer needed.
        """
        self._newest()
        if self.worker.attempt != self._attempt:
            raise Skipped

    def _stamp(self, op: Op, *, samples: int = 0) -> Header:
        (incarnation, generation), iteration = self.worker.term, self.worker.iteration
        return Header(op=op, incarnation=incarnation, generation=generation, iteration=iteration, samples=samples)


def _supersedes(known: Orders, iteration: int, orders: Orders) -> bool:
    """Whether ``orders`` are of a later generation than those ``known``, or no longer need ``iteration``."""
    known_term, term = (known.incarnation, known.generation), (orders.incarnation, orders.generation)
    return term > known_term or orders.skip_to > iteration
