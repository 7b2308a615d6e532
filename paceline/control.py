"""What a rank says to the control plane and hears from it, by the worker's machine; no sockets here."""

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from controlplane.protocol import RELEASE
from controlplane.protocol.environment import release_of, system
from controlplane.protocol.messages import RankHello
from controlplane.protocol.orders import Orders
from controlplane.protocol.worker import Phase, WorkerMachine
from paceline.identity import Identity, machine

Build = Callable[[int], Any]


class Link(Protocol):
    """A connection that survives outages; never waited for, and never raises."""

    def say(self, build: Build) -> None:
        """Send ``build(number)`` when that is possible."""

    def newest(self) -> Orders | None:
        """The newest orders, if any came."""

    def await_orders(self, wait_s: float) -> Orders | None:
        """The first orders, if they come in time."""

    def on_beat(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called each second in which nothing else is said."""

    def close(self, wait_s: float) -> None:
        """Say what is left to say, for so long at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a hello says of the loop."""

    share: int = 1
    samples: int = 0
    multiple: int = 1
    micro_batch: int | None = None
    device: str = ""
    iteration: int | None = None
    """The next one; None: a fresh loop, which begins where the job is."""
    prefetched: int = -1


class Control:
    """One rank's conversation. The loop decides where it stands: it never waits for grants."""

    def __init__(self, link: Link, identity: Identity) -> None:
        self._link, self._identity = link, identity
        self.machine = WorkerMachine(link.say)
        self._standing = Standing()
        self._stands: tuple[int | None, int] = None, -1

    def introduce(self, standing: "Standing") -> None:
        """Say hello; each reconnection says it again, with what ``standing`` is by then."""
        self._standing, self._stands = standing, (standing.iteration, standing.prefetched)
        self._link.say(self._hello)

    def move(self, iteration: int, promised: int) -> None:
        """What a hello of a coming reconnection will say."""
        self._stands = iteration, promised

    def first_orders(self, wait_s: float) -> Orders | None:
        """The first orders, where they come in time."""
        orders = self._link.await_orders(wait_s)
        if orders is not None:
            self.machine.receive(orders)
        return orders

    def receive(self) -> Orders | None:
        """The newest orders where there are newer ones than before."""
        newest = self._link.newest()
        return newest if newest is not None and self.machine.receive(newest) else None

    @property
    def generation(self) -> int:
        """That reports are made under."""
        return 0 if self.machine.orders is None else self.machine.orders.generation

    def say(self, build: Build) -> None:
        """Send ``build(number)`` when that is possible."""
        self._link.say(build)

    def stand(self, iteration: int) -> None:
        """All ranks stand before that iteration; said once for each orders that ask for it."""
        self._at(iteration)
        orders = self.machine.orders
        if orders is not None and orders.hold and not (orders.stop_at is not None and orders.stop_at <= iteration):
            self.machine.next(0.0)

    def finish(self, iteration: int) -> None:
        """The loop is over, by orders or by itself."""
        self._at(iteration)
        if self.machine.phase is not Phase.FINISHED:
            self.machine.phase = Phase.FINISHED
            self.machine.finished(model_saved=False)

    def on_beat(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called each second in which nothing else is said, not on this thread."""
        self._link.on_beat(callback)

    def close(self, wait_s: float) -> None:
        """Say what is left to say, for so long at most."""
        self._link.close(wait_s)

    def _hello(self, number: int) -> RankHello:
        standing, who = self._standing, self._identity
        iteration, prefetched = self._stands
        return RankHello(
            number=number,
            rank=who.rank,
            world=who.world,
            batch_size=standing.share,
            sample_count=standing.samples,
            multiple=standing.multiple,
            iteration=iteration,
            prefetched=prefetched,
            micro_batch=standing.micro_batch,
            host=machine(),
            device=standing.device,
            launcher=who.launcher,
            pid=os.getpid(),
            release=RELEASE,
            environment={"python": platform.python_version(), "torch": release_of("torch"), "platform": system()},
        )

    def _at(self, iteration: int) -> None:
        """The machine follows the loop, which goes on whatever was granted."""
        if self.machine.phase in (Phase.STARTING, Phase.BOUNDARY):
            self.machine.iteration = iteration
