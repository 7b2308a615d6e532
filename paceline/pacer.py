"""One rank of an attached job, as its script sees it: ``watch``, ``loader``, ``step``, ``log``, and states to save.

The loader reports when a batch is awaited and handed out, ``watch`` when gradients are ready and summed, and ``step``
that the iteration is over. Between them ranks agree (``protocol.agreement``) and are timed. None of it waits for the
control plane, and nothing but ``Stopped`` is raised in the loop.
"""

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from controlplane.protocol.agreement import Agreement, Row, Settled, Timeline
from controlplane.protocol.dividing import Pass
from paceline.ceilings import Ceiling
from paceline.control import Control
from paceline.current import AnyLoader, Current
from paceline.cursor import Cursor
from paceline.errors import CannotAttach, Stopped
from paceline.forwards import Forwards
from paceline.identity import Identity
from paceline.logged import Names, number_of
from paceline.marks import CudaClock, Part
from paceline.reporting import Iteration, Reporter, Subscriber
from paceline.wire import Wire

if TYPE_CHECKING:
    from torch import nn

    from paceline.channel import AnyChannel, Sum
    from paceline.loading import Draw
    from paceline.sampling import BatchSampler
    from paceline.watching import Hook

STAND_S: Final = 0.2
"""Interval at which paused ranks ask one another whether to continue."""

FIRST_ORDERS_S: Final = 3.0
"""How long the first batch may wait for the control plane, which may know the job's position."""

FAREWELL_S: Final = 10.0
"""How long the end of the script may wait for the remaining messages."""

log = logging.getLogger("paceline")


class Pacer(Current):
    """One rank of a job, from attaching to the end of its process; made by ``paceline.attach``.

    Args:
        identity: which rank of how many.
        control: its conversation with a control plane, if there is one.
        ceiling: what is known of its memory.
        channel: where ranks add up what they say; None: the process group of torch.distributed.
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
        self._control, self._ceiling, self._notice = control, ceiling, notice
        self._said: set[str] = set()
        self._names = Names(self._say)
        self._forwards = Forwards(self._next_batch)
        self._watched, self._gives_up = self.world == 1, False
        self._channel: AnyChannel | None = channel
        self._agreement: Agreement | None = None
        self._governed = self._meets = False
        """Whether any rank names a control plane; whether the ranks exchange words by sums."""
        self.coming_sizes: list[int] = []
        """Samples that each rank has for the next iteration, where they come from streams."""
        self.multiple, self.cursor = 1, Cursor(self.world)
        self._round: Sum | None = None
        self._promised = -1
        """The last iteration that this rank may draw before it has read the sum under way."""
        self._settled: Settled | None = None
        """What that sum means, if it was read before the iteration's end."""
        self.sampler: BatchSampler | None = None
        """The current pass', where the script has a DataLoader of its own."""
        self._reporter = Reporter(self.rank, self.world, control)
        self._wire = Wire()
        self._device = "cpu"
        self._is_over = self._comes_back = False

    # -- the script's interface

    def watch(
        self, module: "nn.Module", *, hook: "Hook | None" = None, hook_state: Any = None, weigh: bool = True
    ) -> Any:
        """Weigh the module's gradients by samples; the module itself.

        Args:
            module: as it is trained: wrapped in DDP, sharded by ``fully_shard``, or compiled.
            hook: of DDP (powerSGD, bf16), which then is not to be registered by ``register_comm_hook``.
            hook_state: its state.
            weigh: False where the loss is weighted already: a sum over the rank's samples or tokens, times the number
                of ranks, divided by the samples or tokens of all ranks. Then gradients are timed only.

        Raises:
            CannotAttach: if its gradients cannot be weighted.
        """
        device = next((parameter.device for parameter in module.parameters()), None)
        if device is not None:
            self._device = str(device)
        if device is not None and device.type == "cuda" and self._control is not None:
            self._clock = CudaClock(device)
            self._reporter.computes_on(device)
        self._forwards.add(module)
        if self.world > 1:
            from paceline.watching import Unweighted, watch

            watch(module, self if weigh else Unweighted(self), hook, hook_state)
            self._watched = True
        return module

    def loader(
        self,
        dataset: Any,
        batch_size: int = 1,
        *,
        seed: int = 0,
        accumulate: int = 1,
        multiple: int = 1,
        shuffle: bool = True,
        drop_last: bool = False,
        **options: Any,
    ) -> "AnyLoader":
        """The batches of this rank: a ``DataLoader`` whose batches follow the shares.

        Args:
            dataset: or a ``DataLoader``, whose batch size, order and options are taken over. An iterable data set
                yields the samples of this rank alone, one by one.
            batch_size: as ``DataLoader`` has it: of one rank and one backward pass, where shares are even.
            seed: of the passes' permutations.
            accumulate: batches of one iteration, between two steps of the optimizer.
            multiple: what a batch's samples are multiples of, but for the last of a pass.
            shuffle: whether each pass has its own order.
            drop_last: whether a smaller iteration at the end of a pass is left out.
            options: of ``DataLoader``.

        Raises:
            CannotAttach: if a value cannot be used.
        """
        from torch.utils.data import IterableDataset

        from paceline.given import understood
        from paceline.loading import Loader
        from paceline.streams import StreamLoader

        plan = {"seed": seed, "accumulate": accumulate, "multiple": multiple, "shuffle": shuffle}
        plan |= {"batch_size": batch_size, "drop_last": drop_last}
        data, made, options = understood(dataset, plan, options)
        kind: Any = StreamLoader if isinstance(data, IterableDataset) else Loader
        loader: AnyLoader = kind(self, data, made, options)
        return loader

    def batch_sampler(
        self,
        length: int,
        *,
        batch_size: int = 1,
        seed: int = 0,
        accumulate: int = 1,
        multiple: int = 1,
        shuffle: bool = True,
        drop_last: bool = False,
    ) -> "BatchSampler":
        """The batches of this rank as lists of indices, for a DataLoader of the script's own (``batch_sampler=``).

        Call ``step`` after each batch, and train by the watched module's forward.

        Args:
            length: samples of the data set. The other arguments are those of ``loader``.
            batch_size: of one rank and one backward pass, where shares are even.
            seed: of the passes' permutations.
            accumulate: batches of one iteration.
            multiple: what a batch's samples are multiples of.
            shuffle: whether each pass has its own order.
            drop_last: whether a smaller iteration at the end of a pass is left out.

        Raises:
            CannotAttach: if a value cannot be used.
        """
        from paceline.given import checked
        from paceline.sampling import BatchSampler

        plan = {"batch_size": batch_size, "seed": seed, "accumulate": accumulate, "multiple": multiple}
        plan |= {"shuffle": shuffle, "drop_last": drop_last}
        self._forwards.follow()
        return BatchSampler(self, length, checked("batch_sampler", plan))

    def step(self, loss: Any = None) -> None:
        """End the iteration: call it after ``optimizer.step()``, or after each batch where batches accumulate.

        Raises:
            Stopped: if the job was stopped, or its launcher will end the ranks and start them again.
        """
        self._next_batch()
        if self._draw is None or self._measured is None or self._loader is None:
            return
        if self.sampler is not None:
            self.sampler.used()
        if loss is not None and (number := number_of(self._clock, "step(loss)", loss, self._say)) is not None:
            self._measured.losses.append(number)
        if self._draw.micro + 1 == self._loader.plan.accumulate:
            self._end_iteration()

    def log(self, **series: Any) -> None:
        """Show numbers of this iteration on the job's page, by name."""
        if self._measured is not None:
            self._measured.logged.update(self._names.numbers(self._clock, series))

    @property
    def iteration(self) -> int:
        """The next iteration, or the current one."""
        return self.cursor.iteration

    @property
    def epoch(self) -> int:
        """The current pass, or the next one."""
        return self.cursor.epoch

    @property
    def last(self) -> Iteration | None:
        """The last iteration that was reported, one or two behind."""
        return self._reporter.last

    def subscribe(self, callback: Subscriber) -> None:
        """Have ``callback`` called with each ``Iteration``, from ``step`` of a later one."""
        self._reporter.subscribers.append(callback)

    @property
    def active(self) -> bool:
        """Whether a control plane is named; without one, no call changes the training."""
        return self._control is not None

    @property
    def shares(self) -> tuple[int, ...]:
        """Samples of this iteration, by rank; none before the first batch."""
        return () if self._agreement is None else tuple(self._agreement.timeline.shares(self.cursor.iteration))

    def state_dict(self) -> dict[str, Any]:
        """The job's position after the last ``step``; the same at each rank, and for any number of ranks."""
        return self.cursor.state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from the saved position; call it before the first batch, at each rank.

        Raises:
            CannotAttach: if training has begun.
        """
        if self._agreement is not None:
            raise CannotAttach("load_state_dict(): batches were handed out already; load the state before the first")
        self.cursor.load(state)

    def close(self) -> None:
        """End the script's part: send the remaining messages. Called automatically when the process ends."""
        if self._is_over:
            return
        self._is_over, self._stalls.place = True, None
        self._wire.close()
        self._reporter.flush(self._clock, self._ceiling.samples)
        if self._control is not None:
            if self._agreement is not None and not self._comes_back:
                self._control.finish(self.cursor.iteration)
            self._control.close(FAREWELL_S)

    def failed(self, error: BaseException) -> None:
        """The script ends by ``error``: either this rank will be back, or its launcher reports that the job is over."""
        import sys

        torch = sys.modules.get("torch")
        if torch is not None and isinstance(error, torch.OutOfMemoryError) and self._draw is not None:
            samples = self._draw.sizes[self.rank]
            self._ceiling.ran_short(samples, self.multiple)
            cure = f"it is given {self._ceiling.samples} at most from now on"
            log.warning(
                "paceline: rank %d ran out of memory with %d samples per iteration: %s", self.rank, samples, cure
            )
        self._comes_back = True

    # -- calls of the loader

    @property
    def timeline(self) -> Timeline:
        """The agreed shares."""
        assert self._agreement is not None
        return self._agreement.timeline

    def begin_pass(self, loader: AnyLoader) -> Pass:
        """The next pass over the data, or the rest of one. Collective at the first."""
        if self._draw is not None:
            self._end_early()
        self._loader, self.sampler = loader, None
        if self._agreement is None:
            self._set_up(loader)
        return self.cursor.begin_pass()

    def end_pass(self) -> None:
        """All batches of the pass were handed out and used."""
        self.end_unless_ended()
        self.cursor.end_pass()

    def end_unless_ended(self) -> None:
        """The script continues after the iteration's last batch."""
        if self._draw is not None:
            self._end_early()

    def agree_on(self, samples: int) -> list[int]:
        """How many samples each rank has for the next iteration. Collective."""
        words = [0.0] * self.world
        words[self.rank] = float(samples)
        return [samples] * self.world if self._channel is None else [int(n) for n in self._channel.total(words)]

    def overdraw(self, iteration: int) -> int:
        """By how many iterations that one, drawn now, is past what was promised: then the sum under way is read."""
        over = iteration - self._promised
        if self._round is None or self._draw is None or over <= 0:
            return 0
        self._read_sum(self._draw.iteration)
        return over

    def awaiting_batch(self, *, outside: bool = True) -> None:
        """The script requests the next batch; ``outside``: and has done something else since the previous one."""
        draw, loader = self._draw, self._loader
        if draw is not None and loader is not None and draw.micro + 1 == loader.plan.accumulate:
            self._end_early()
        self.open(self.cursor.iteration, outside=outside)

    def has_batch(self, draw: "Draw") -> None:
        """The batch is handed out now."""
        self.mark(Part.DATA)
        self.enter("compute")
        self._draw = draw
        if draw.micro == 0 and self._measured is not None:
            size = draw.sizes[self.rank]
            self._measured.samples, self._measured.position = size, draw.position
            self._begin_round(size)

    def give_up(self, reason: str) -> None:
        """Keep the shares as they are."""
        self._gives_up = True
        if self.active:
            self._say(f"shares stay even: {reason}")

    # -- an iteration

    def _begin_round(self, samples: int) -> None:
        """Exchange this rank's values with the other ranks while the gradient is computed."""
        if self._agreement is None or self._channel is None or not self._meets:
            return
        if self._control is not None and (orders := self._control.receive()) is not None:
            self._agreement.receive(orders)
            if self._agreement.refusal:
                self._say(self._agreement.refusal)
        self._reporter.resolve(self._clock)
        row = self._row(samples)
        self._promised = row.promised
        self._round = self._channel.begin(self._agreement.encode(row))

    def _next_batch(self) -> None:
        """The script trains with the next batch that its own loader has handed out."""
        if self.sampler is not None:
            self.sampler.use()

    def _row(self, samples: int) -> Row:
        assert self._loader is not None
        timed, sum_s, link_s = self._reporter.next_timed()
        return Row(
            samples=samples,
            promised=self._loader.promised,
            coming=self._loader.coming(),
            ceiling=self._ceiling.samples,
            gives_up=int(self._gives_up),
            leaves=int(self._notice()),
            timed=timed,
            sum_s=sum_s,
            link_s=link_s,
        )

    def _end_early(self) -> None:
        """The script continues without ``step``: the iteration is over all the same."""
        if self._governed:
            self._say("an iteration went by without pacer.step(loss): its loss is not known, and it is timed less well")
        self._end_iteration()

    def _end_iteration(self) -> None:
        measured, draw = self._measured, self._draw
        assert measured is not None
        assert draw is not None
        self._edge = self._clock.stamp()
        measured.add(Part.COMPUTE, self._edge)
        if self._governed:
            measured.link_s = self._wire.took_s()
        self._measured = self._draw = None
        self.cursor.move(draw.iteration, draw.begin, draw.sizes)
        if self._control is not None and self._loader is not None:
            self._control.move(self.cursor.iteration, self._loader.promised)
        self._reporter.add(measured)
        if self._round is not None:
            self.enter("sum")
            self._read_sum(draw.iteration)
        settled, self._settled = self._settled, None
        if settled is None:
            self._reporter.alone(self._clock)
        else:
            self._settle(settled)
        self._stalls.begin(self.cursor.iteration)

    def _read_sum(self, iteration: int) -> None:
        """Read the sum under way, which is that iteration's: the shares behind it are known then."""
        if self._round is not None and self._agreement is not None:
            round_, self._round = self._round, None
            self._settled = self._agreement.read(round_.result(), iteration)

    def _settle(self, settled: Settled) -> None:
        assert self._agreement is not None
        self._reporter.note_sums(settled.columns, self._ceiling.samples)
        if self._loader is not None and not self._loader.samples:
            self.coming_sizes = [int(samples) for samples in settled.columns.coming]
        self._agreement.timeline.forget(self.cursor.iteration)
        if settled.hold:
            settled = self._stand(settled)
        if settled.stop:
            self._say_goodbye()
            raise Stopped(f"the job was stopped before iteration {self.cursor.iteration}")
        if settled.leaves:
            self._reporter.flush(self._clock, self._ceiling.samples)
            self._comes_back = True
            where = f"before iteration {self.cursor.iteration}"
            raise Stopped(f"the ranks' launcher ends them {where}, and will start them again", goes_on=True)

    def _stand(self, settled: Settled) -> Settled:
        """Pause all ranks before the next iteration until newer orders let them continue."""
        assert self._agreement is not None
        assert self._channel is not None
        self._stalls.place = None
        while settled.hold and not settled.leaves:
            if self._control is not None:
                self._control.stand(self.cursor.iteration)
            time.sleep(STAND_S)
            if self._control is not None and (orders := self._control.receive()) is not None:
                self._agreement.receive(orders)
            row = self._row(0)._replace(timed=-1)
            settled = self._agreement.read(self._channel.total(self._agreement.encode(row)), self.cursor.iteration - 1)
        self._edge = self._clock.stamp()
        return settled

    def _say_goodbye(self) -> None:
        self._stalls.place = None
        self._reporter.flush(self._clock, self._ceiling.samples)
        if self._control is not None:
            self._control.finish(self.cursor.iteration)

    # -- the beginning

    def _set_up(self, loader: AnyLoader) -> None:
        from paceline.channel import open_channel
        from paceline.setup import agree, facts_of

        if self._channel is None:
            self._channel = open_channel(self.world)
        orders = None
        if self._control is not None:
            resumed = self.cursor.iteration if self.cursor.resumed else None
            self._control.introduce(loader.plan.standing(loader.samples, self._device, resumed))
            orders = self._control.first_orders(FIRST_ORDERS_S)
        knows = {"watched": self._watched, "governed": self._control is not None, "resumed": self._may_resume(loader)}
        facts = facts_of(loader.plan, loader.samples, self.cursor, orders, **knows)
        start = agree(self._channel, self.rank, self.world, facts, orders)
        for note in start.notes:
            self._say(note)
        self.cursor.settle(samples=start.samples, batch=sum(start.batches), seed=start.seed, drop_last=start.drop_last)
        self.cursor.go_to(start.iteration, start.number, start.begin)
        self.multiple = start.multiple
        self._governed, self._meets = start.governed, start.governed or not start.samples
        self._agreement = Agreement(self.rank, start.timeline, multiple=start.multiple, fixed=start.fixed)
        self._edge = self._clock.stamp()
        self._stalls.begin(self.cursor.iteration)

    def _may_resume(self, loader: AnyLoader) -> bool:
        if self.cursor.resumed and not self.cursor.fits(loader.samples, loader.plan.seed):
            self._say(
                f"the loaded state is of other samples or another seed than the loader's {loader.samples} and"
                f" {loader.plan.seed}: pass {self.cursor.number} begins anew"
            )
        return self.cursor.resumed

    def _say(self, sentence: str) -> None:
        """Log once, at one rank, what all ranks would log."""
        if sentence not in self._said:
            self._said.add(sentence)
            log.log(logging.WARNING if self.rank == 0 else logging.INFO, "paceline: %s", sentence)
