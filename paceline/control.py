"""A rank's messages to and from the control plane, through the worker's state machine; without sockets."""

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from controlplane.protocol import RELEASE
from controlplane.protocol.environment import release_of, system
from controlplane.protocol.messages import RankHello
from controlplane.protocol.orders import Orders
from controlplane.protocol.worker import Phase, WorkerMachine
from paceline.identity import Identity, machine

FAREWELL_S: Final = 10.0
"""How long the end of the script may wait for the remaining messages to be sent."""

Build = Callable[[int], Any]


class Link(Protocol):
    """A connection that survives outages; its methods neither block nor raise."""

    def say(self, build: Build) -> None:
        """Send ``build(number)`` as soon as possible."""

    def newest(self) -> Orders | None:
        """The newest orders, if any have arrived."""

    def await_orders(self, wait_s: float) -> Orders | None:
        """The first orders, if they arrive in time."""

    def on_beat(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called in each second without another message."""

    def close(self, wait_s: float) -> None:
        """Send the remaining messages, for at most so many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankState:
    """The loop's state, as a hello reports it."""

    share: int = 1
    samples: int = 0
    multiple: int = 1
    micro_batch: int | None = None
    scales_lr: bool = False
    device: str = ""
    iteration: int | None = None
    """The next iteration; None: a new loop, which begins at the job's position."""
    prefetched: int = -1


class Control:
    """One rank's conversation with the control plane. Only the loop decides its position: it never waits for grants."""

    def __init__(self, link: Link, identity: Identity) -> None:
        self._link, self._identity = link, identity
        self.machine = WorkerMachine(link.say)
        self._rank_state = RankState()
        self._position: tuple[int | None, int] = None, -1

    def introduce(self, rank_state: "RankState") -> None:
        """Send a hello; each reconnection sends it again, with the current state."""
        self._rank_state, self._position = rank_state, (rank_state.iteration, rank_state.prefetched)
        self._link.say(self._hello)

    def move(self, iteration: int, promised: int) -> None:
        """Set the position that the next reconnection's hello reports."""
        self._position = iteration, promised

    def first_orders(self, wait_s: float) -> Orders | None:
        """The first orders, if they arrive in time."""
        orders = self._link.await_orders(wait_s)
        if orders is not None:
            self.machine.receive(orders)
        return orders

    def receive(self) -> Orders | None:
        """The newest orders, if there are newer ones than before."""
        newest = self._link.newest()
        return newest if newest is not None and self.machine.receive(newest) else None

    @property
    def generation(self) -> int:
        """The generation to which reports belong."""
        return 0 if self.machine.orders is None else self.machine.orders.generation

    def say(self, build: Build) -> None:
        """Send ``build(number)`` as soon as possible."""
        self._link.say(build)

    def report_paused(self, iteration: int) -> None:
        """Report that all ranks have stopped before that iteration; sent once per orders that request it."""
        self._at(iteration)
        orders = self.machine.orders
        if orders is not None and orders.hold and not (orders.stop_at is not None and orders.stop_at <= iteration):
            self.machine.next(0.0)

    def finish(self, iteration: int) -> None:
        """The loop is over, either because of orders or by itself."""
        self._at(iteration)
        if self.machine.phase is not Phase.FINISHED:
            self.machine.phase = Phase.FINISHED
            self.machine.finished(model_saved=False)

    def on_beat(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called in each second without another message, on another thread."""
        self._link.on_beat(callback)

    def close(self, wait_s: float) -> None:
        """Send the remaining messages, for at most so many seconds."""
        self._link.close(wait_s)

    def _hello(self, number: int) -> RankHello:
        rank_state, who = self._rank_state, self._identity
        iteration, prefetched = self._position
        return RankHello(
            number=number,
            rank=who.rank,
            world=who.world,
            batch_size=rank_state.share,
            sample_count=rank_state.samples,
            multiple=rank_state.multiple,
            iteration=iteration,
            prefetched=prefetched,
            micro_batch=rank_state.micro_batch,
            scales_lr=rank_state.scales_lr,
            host=machine(),
            device=rank_state.device,
            launcher=who.launcher,
            pid=os.getpid(),
            release=RELEASE,
            environment={"python": platform.python_version(), "torch": release_of("torch"), "platform": system()},
        )

    def _at(self, iteration: int) -> None:
        """Move the state machine to the loop's position; the loop continues regardless of grants."""
        if self.machine.phase in (Phase.STARTING, Phase.BOUNDARY):
            self.machine.iteration = iteration
