"""The interface of one rank for its script: ``watch``, ``loader``, ``step``, ``log``, and state to save.

The loader reports when a batch is awaited and yielded, ``watch`` when gradients are ready and summed, and ``step`` that
the iteration is over. Between iterations ranks agree on shares (``Exchange``); times are measured throughout. Nothing
waits for the control plane, and only ``Stopped`` is raised in the loop, ``CannotAttach`` by a loader whose pass cannot
be made, or the error of a process group that was lost.
"""

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from controlplane.protocol.agreement import Agreement, Row, Settled, Timeline
from controlplane.protocol.dividing import Pass, divide
from controlplane.protocol.orders import Orders
from paceline.budget import Budget
from paceline.ceilings import Ceiling
from paceline.control import FAREWELL_S, Control
from paceline.current import AnyLoader
from paceline.cursor import Data
from paceline.errors import CannotAttach, Stopped
from paceline.exchange import Exchange
from paceline.identity import Identity
from paceline.logged import Names, number_of
from paceline.marks import CudaClock, Norms, Part
from paceline.passes import Passes
from paceline.rates import follow_batch
from paceline.reporting import Forwarder, Iteration, Reporter, Subscriber
from paceline.sooner import Sooner
from paceline.wire import Wire

if TYPE_CHECKING:
    from torch import nn

    from paceline.channel import AnyChannel
    from paceline.loading import Draw
    from paceline.watching import Hook

PAUSE_POLL_S: Final = 0.2
"""Interval at which paused ranks check whether to continue."""

FIRST_ORDERS_S: Final = 3.0
"""How long the first batch may wait for the control plane, which may know the job's position."""

OTHER_TERMS: Final = (
    "pacer.loader() has other data or another batch size than before: shares keep their proportions, the global batch"
    " does not grow, and only pacer.state_dict() has the position to resume from after a restart"
)

log = logging.getLogger("paceline")


class Pacer(Passes):
    """One rank of a job, from attaching to the end of its process; created by ``paceline.attach``.

    Args:
        identity: rank and world size.
        control: the connection to a control plane, if there is one.
        ceiling: the known memory limit in samples.
        channel: sums rows over the ranks; None: the process group of torch.distributed.
        notice: whether the launcher has announced that it will end this rank and restart it.
    """

    def __init__(
        self,
        identity: Identity,
        control: Control | None,
        ceiling: Ceiling,
        *,
        channel: "AnyChannel | None" = None,
        notice: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(identity.rank, identity.world, control)
        self._ceiling, self._notice = ceiling, notice
        self._names = Names(self._say)
        self._watched, self._gives_up = self.world == 1, False
        self._scales_lr = False
        self._channel: AnyChannel | None = channel
        self._agreement: Agreement | None = None
        self._terms: tuple[Any, ...] | None = None
        """The ranks' terms for the loader that was used last."""
        self._has_other_terms = False
        """Whether an earlier loader had others, by which the control plane knows the job."""
        self._governed = False
        """Whether any rank has a control plane."""
        self.coming_sizes: list[int] = []
        """Number of samples of each rank in the next iteration, if they come from streams."""
        self.multiple = 1
        self._reporter = Reporter(self.rank, self.world, control)
        self._wire, self._budget = Wire(), Budget()
        self._device = "cpu"
        self._is_over = self._comes_back = False

    # -- the script's interface

    def watch(
        self, module: "nn.Module", *, hook: "Hook | None" = None, hook_state: Any = None, weigh: bool = True
    ) -> Any:
        """Weight the module's gradients by samples; return the module.

        Args:
            module: as it is trained: wrapped in DDP, sharded by ``fully_shard``, or compiled.
            hook: DDP's communication hook (powerSGD, fp16), to be registered here or before by ``register_comm_hook``.
            hook_state: its state.
            weigh: False where the loss is weighted already: a sum over the rank's samples or tokens, times the number
                of ranks, divided by the samples or tokens of all ranks. Then gradients are timed only.

        Raises:
            CannotAttach: if its gradients cannot be weighted.
        """
        device = next((parameter.device for parameter in module.parameters()), None)
        if device is not None:
            self._device = str(device)
        if device is not None and device.type == "cuda":
            self._clock = CudaClock(device)
            self._reporter.computes_on(device)
        self._forwards.add(module)
        on_cpu = all(parameter.device.type == "cpu" for parameter in module.parameters())
        self._awaits_sums = self._awaits_sums and on_cpu and hook is None and not getattr(module, "_comm_hooks", None)
        if self.world > 1:
            from paceline.watching import Unweighted, watch

            watch(module, self if weigh else Unweighted(self), hook, hook_state)
            self._watched = True
        if self.world > 1 or self.active:
            self._forwards.follow()
        return module

    def scale_lr(self, *optimizers: Any) -> None:
        """Scale the learning rate with the global batch if the job was submitted with ``fill``; otherwise it is
        unchanged.

        Each step of the optimizers is then made with their learning rates times ``lr_scale``. Schedulers and saved
        state keep the rates that the script sets. Call it before the first batch, on each rank.

        Args:
            optimizers: if empty, the script multiplies its learning rate by ``lr_scale`` itself, in each pass.

        Raises:
            CannotAttach: if training has begun, or one of them is not a torch optimizer.
        """
        if self._agreement is not None:
            raise CannotAttach("scale_lr(): batches were handed out already; call it before the first")
        for optimizer in optimizers:
            follow_batch(optimizer, lambda: self.lr_scale)
        self._scales_lr = True

    @property
    def lr_scale(self) -> float:
        """The factor of this pass's learning rate: 1 unless the global batch has grown."""
        return 1.0 if self._agreement is None else self._agreement.lr_scale

    def step(self, loss: Any = None) -> None:
        """End the iteration: call it after ``optimizer.step()``, or after each batch if gradients are accumulated.

        Raises:
            Stopped: if the job was stopped, or its launcher will end the ranks and start them again.
        """
        self._next_batch()
        loader = self._loader
        if self._draw is None or self._measured is None or loader is None:
            self._explain_unpaced()
            return
        is_read = loss is not None and self._reporter.is_read
        if is_read and (number := number_of(self._clock, "step(loss)", loss, self._say)) is not None:
            self._measured.losses.append(number)
        if self._draw.micro + 1 == loader.plan.accumulate:
            self._end_iteration()
        loader.used()

    def log(self, **series: Any) -> None:
        """Show numbers of this iteration on the job's page, by name."""
        if self._measured is not None and self._reporter.is_read:
            self._measured.logged.update(self._names.numbers(self._clock, series))

    @property
    def last(self) -> Iteration | None:
        """The last reported iteration, one or two behind the current one; has losses only if they are sent anywhere."""
        return self._reporter.last

    def subscribe(self, callback: Subscriber) -> None:
        """Call ``callback`` with each ``Iteration``, from ``step`` of a later one."""
        self._reporter.subscribers.append(callback)

    def forward(self, forwarder: Forwarder) -> None:
        """Subscribe ``forwarder``; ``close`` waits for it."""
        self._reporter.forward(forwarder)

    @property
    def active(self) -> bool:
        """Whether a control plane is configured; if not, no call changes the training."""
        return self._control is not None

    @property
    def shares(self) -> tuple[int, ...]:
        """Samples of this iteration by rank; empty before the first batch."""
        return () if self._agreement is None else tuple(self._agreement.timeline.shares(self.cursor.iteration))

    def close(self) -> None:
        """End the rank: send the remaining messages and iterations. Called automatically when the process ends."""
        if self._is_over:
            return
        self._is_over, self._stalls.place, until_s = True, None, time.monotonic() + FAREWELL_S
        self._reporter.end(self._clock, self._ceiling.samples)
        if self._control is not None:
            if self._agreement is not None and not self._comes_back:
                self._finish(self._control)
            self._control.close(FAREWELL_S)
        self._reporter.await_forwarders(until_s)

    def failed(self, error: BaseException) -> None:
        """The script ends with ``error``: either this rank will be restarted, or its launcher reports that the job is
        over.
        """
        import sys

        torch = sys.modules.get("torch")
        ran_short = getattr(torch, "OutOfMemoryError", ())  # as of torch 2.5
        if isinstance(error, ran_short) and self._draw is not None:
            samples = self._draw.sizes[self.rank]
            self._ceiling.ran_short(samples, self.multiple)
            cure = f"its share is at most {self._ceiling.samples} from now on"
            log.warning(
                "paceline: rank %d ran out of memory with %d samples per iteration: %s", self.rank, samples, cure
            )
        self._comes_back = True

    # -- called by the loader

    @property
    def timeline(self) -> Timeline:
        """The agreed shares."""
        assert self._agreement is not None
        return self._agreement.timeline

    @property
    def awaits_forward(self) -> bool:
        """Whether the forward of a watched module would be noticed, and neither it nor a ``step`` was in this pass."""
        return self._forwards.follows and not self.has_computed

    def begin_pass(self, loader: AnyLoader) -> Pass:
        """Begin the next pass over the data, or the rest of one. Collective in a loader's first pass, and where another
        loader was used since.

        Raises:
            CannotAttach: if a pass of another loader is under way.
        """
        before = self._loader
        self.turns.begin(loader.samples, follows=before is None or before is loader or self.cursor.is_over)
        if before is not None:
            before.finish()
        self.end_unless_ended()
        self._loader, self.has_computed = loader, False
        if before is not loader:
            self._set_up(loader)
        each = self.cursor.begin_pass()
        if not each.begin and self._agreement is not None:
            self._agreement.begin_pass(each.first)
            self.cursor.batch = self._agreement.batch
        return structs.replace(each, batch=self.cursor.batch)

    def end_pass(self) -> None:
        """All batches of the pass were yielded and used."""
        self.end_unless_ended()
        self.cursor.end_pass()

    def end_unless_ended(self) -> None:
        """The script continues after the iteration's last batch."""
        if self._draw is not None:
            self._end_early()

    def agree_on(self, samples: int) -> list[int]:
        """Exchange how many samples each rank has for the next iteration. Collective."""
        return [samples] * self.world if self._exchange is None else self._exchange.counts(samples)

    def overdraw(self, iteration: int) -> int:
        """By how many iterations this one, drawn now, exceeds the promised one."""
        if self._exchange is None or self._draw is None:
            return 0
        return self._exchange.overdraw(iteration, self._draw.iteration)

    def awaiting_batch(self, *, outside: bool = True) -> None:
        """The script requests the next batch; ``outside``: it did something else since the previous one."""
        self._comes_back = False  # the error that ``failed`` reported has not ended the script
        draw, loader = self._draw, self._loader
        if draw is not None and loader is not None and draw.micro + 1 == loader.plan.accumulate:
            self._end_early()
        self.open(self.cursor.iteration, outside=outside)

    def has_batch(self, draw: "Draw") -> None:
        """A batch is yielded."""
        self.mark(Part.DATA)
        self.enter("compute")
        self._draw = draw
        if draw.micro == 0 and self._measured is not None:
            size = draw.sizes[self.rank]
            self._measured.samples, self._measured.position = size, draw.position
            self._measured.shares = self.timeline.shares(draw.iteration)
            batch, accumulate = sum(draw.sizes), self._loader.plan.accumulate if self._loader is not None else 1
            if self._governed and accumulate == 1 and self._budget.allows(draw.iteration) and 0 < size < batch:
                self._measured.norms = Norms(share=size, batch=batch, number=self._clock.number)
            if self._exchange is not None:
                self._exchange.begin_iteration(draw.iteration)

    def give_up(self, reason: str) -> None:
        """Keep the shares as they are."""
        self._gives_up = True
        if self.active:
            self._say(f"shares stay even: {reason}")

    # -- an iteration

    def _next_batch(self) -> None:
        """Called before a watched module's forward, and by ``step``: the batch that was taken first is in use."""
        self.has_computed = True
        if self._loader is not None:
            self._loader.use_next()

    def _words(self, *, means: bool, is_over: bool) -> Row:
        """The rank's row in the exchange that starts now."""
        assert self._loader is not None
        self._hear()
        self._reporter.resolve(self._clock)
        timed, times = self._reporter.next_timed(means=means)
        row = self._row(self._loader.drawn if is_over else self._loader.promised)
        return row._replace(timed=timed, **times._asdict())

    def _row(self, promised: int) -> Row:
        assert self._loader is not None
        return Row(
            promised=promised,
            coming=self._loader.coming(),
            ceiling=self._ceiling.samples,
            gives_up=int(self._gives_up),
            leaves=int(self._notice()),
            usual_s=self._stalls.usual_s,
        )

    def _hear(self) -> None:
        """Receive the newest orders, if there are any."""
        if self._control is None or self._agreement is None or (orders := self._control.receive()) is None:
            return
        if self._has_other_terms and orders.shares:
            orders = structs.replace(orders, shares=divide(orders.shares, self._agreement.batch, self.multiple))
        self._agreement.receive(orders)
        if self._agreement.refusal:
            self._say(self._agreement.refusal)
        if orders.fill_rule and not self._scales_lr:
            self._say(
                "the job was submitted with fill, and the global batch stays: call pacer.scale_lr(optimizer) before"
                " the first batch"
            )

    def _end_early(self) -> None:
        """The script continues without ``step``: end the iteration."""
        if self._governed:
            self._say("an iteration ended without pacer.step(loss): its loss is unknown and its times are less precise")
        self._end_iteration()

    def _end_iteration(self) -> None:
        measured, draw = self._measured, self._draw
        assert measured is not None
        assert draw is not None
        edge = self._clock.stamp()
        self._edges = [(Part.OUTSIDE, edge)]
        measured.add(Part.COMPUTE, edge)
        if self._governed:
            measured.link_s = self._wire.took_s()
        if measured.norms is not None:
            self._budget.spend(measured.norms.took_s, self._stalls.usual_s)
        self._measured = self._draw = None
        self.cursor.move(draw.iteration, draw.begin, draw.sizes)
        if self._control is not None and self._loader is not None:
            self._control.move(self.cursor.iteration, self._loader.promised)
        self._reporter.add(measured)
        self.enter("sum")
        if self._exchange is None:
            self._reporter.alone(self._clock)
        elif (settled := self._exchange.end_iteration(draw.iteration)) is not None:
            self._edges.append((Part.EXCHANGE, self._clock.stamp()))
            self._settle(self._exchange, settled)
        self._stalls.begin(self.cursor.iteration)

    def _settle(self, exchange: Exchange, settled: Settled) -> None:
        self._reporter.note_sums(settled.columns, self._ceiling.samples)
        if self._loader is not None and not self._loader.samples:
            self.coming_sizes = [int(samples) for samples in settled.columns.coming]
        self.timeline.forget(self.cursor.iteration)
        if settled.hold:
            settled = self._wait_while_paused(exchange, settled)
        if settled.stop:
            self._say_goodbye()
            raise Stopped(f"the job was stopped before iteration {self.cursor.iteration}")
        if settled.leaves:
            self._reporter.flush(self._clock, self._ceiling.samples)
            self._comes_back = True
            where = f"before iteration {self.cursor.iteration}"
            raise Stopped(f"the launcher stops the ranks {where} and will restart them", will_restart=True)

    def _wait_while_paused(self, exchange: Exchange, settled: Settled) -> Settled:
        """Pause all ranks before the next iteration until newer orders let them continue."""
        assert self._loader is not None
        self._stalls.place = None
        while settled.hold and not settled.leaves:
            if self._control is not None:
                self._control.report_paused(self.cursor.iteration)
            time.sleep(PAUSE_POLL_S)
            self._hear()
            settled = exchange.repeat(self.cursor.iteration - 1, self._row(self._loader.promised))
        self.restart()
        return settled

    def _say_goodbye(self) -> None:
        self._stalls.place = None
        self._reporter.flush(self._clock, self._ceiling.samples)
        if self._control is not None:
            self._finish(self._control)

    def _finish(self, control: Control) -> None:
        control.finish(self.cursor.iteration)
        self._ceiling.forget()

    # -- start

    def _set_up(self, loader: AnyLoader) -> None:
        """Agree on the passes of ``loader``, the first one or another one than before."""
        from paceline.channel import open_channel
        from paceline.setup import agree, facts_of

        before = self._agreement
        if self._channel is None:
            self._channel = open_channel(self.world)
        orders = self._introduce(loader) if before is None else None
        knows = {
            "watched": self._watched,
            "awaits_sums": self._awaits_sums,
            "scales_lr": self._scales_lr,
            "governed": self._control is not None,
            "resumed": before is not None or self._may_resume(loader),
        }
        facts = facts_of(loader.plan, loader.samples, self.cursor, orders, **knows)
        start = agree(self._channel, self.rank, self.world, facts, orders)
        for note in start.notes:
            self._say(note)
        if start.terms == self._terms:
            return
        self._terms = start.terms
        data = Data(start.samples, start.seed)
        self.cursor.settle(data, batch=sum(start.batches), drop_last=start.drop_last)
        if before is None:
            self.cursor.go_to(start.iteration, start.number, start.begin)
        else:
            start, self._has_other_terms = start.after(before.timeline, self.cursor.iteration), True
            if start.governed:
                self._say(OTHER_TERMS)
        self.multiple = start.multiple
        self._governed = start.governed
        self._agreement = Agreement(
            self.rank,
            start.timeline,
            multiple=start.multiple,
            fixed=start.fixed,
            grows=start.grows and before is None,
        )
        is_stream, self._exchange = not start.samples, None
        if self._channel is not None and (start.governed or is_stream):
            store = self._channel.store if start.governed and start.awaits_sums else None
            sooner = Sooner(self.rank, store)
            self._exchange = Exchange(self._channel, self._agreement, sooner, self._words, is_in_each=is_stream)
        if before is None:
            if start.governed:
                self._wire.look()
            self.restart()
            self._stalls.begin(self.cursor.iteration)

    def _introduce(self, loader: AnyLoader) -> Orders | None:
        """Say hello to the control plane; return its first orders."""
        if self._control is None:
            return None
        resumed = self.cursor.iteration if self.cursor.resumed else None
        self._control.introduce(
            loader.plan.rank_state(loader.samples, self._device, resumed, scales_lr=self._scales_lr)
        )
        return self._control.first_orders(FIRST_ORDERS_S)

    def _may_resume(self, loader: AnyLoader) -> bool:
        if not self.cursor.resumed:
            return False
        if not self.cursor.fits(Data(loader.samples, loader.plan.seed)):
            self._say(
                f"the loaded state has a different number of samples or seed than the loader's {loader.samples} and"
                f" {loader.plan.seed}: pass {self.cursor.number} begins anew"
            )
        elif not loader.samples and (sentence := self.cursor.resume_streams()):
            self._say(sentence)
        return True
