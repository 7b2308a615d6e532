"""A rank whose work is done in another process: only its messages, for a process that represents others (Flower's
server).
"""

import math
import time
from collections.abc import Sequence
from typing import Final

from controlplane.protocol.messages import IterationReport
from paceline.address import socket_address
from paceline.control import Control, RankState
from paceline.identity import Identity
from paceline.link import SocketLink

FAREWELL_S: Final = 2.0
"""How long the end of the process may wait for the remaining messages to be sent."""


class RemoteRank:
    """Reports one rank's iterations and receives its shares; no call blocks training.

    Args:
        url: of the control plane.
        job: its number.
        token: of that job.
        rank: which of the ``world`` ranks it represents.
        batch_size: samples of one rank and iteration, with equal shares.
        samples: number of the rank's samples; 0: not known.
        launcher: shown on the job's page.

    Raises:
        CannotAttach: if the address cannot be used.
    """

    def __init__(
        self,
        url: str,
        job: int,
        token: str,
        *,
        rank: int,
        world: int,
        batch_size: int,
        samples: int = 0,
        launcher: str = "remote",
    ) -> None:
        self.rank, self.world = rank, world
        self._even = (batch_size,) * world
        link = SocketLink(socket_address(url, f"/ws/rank/{job}/{rank}"), token, f"rank {rank} of job {job}")
        self._control = Control(link, Identity(rank=rank, world=world, launcher=launcher))
        self._control.introduce(RankState(share=batch_size, samples=samples))
        self._position = 0
        self.iteration = 0
        """The next iteration to be reported."""

    def await_orders(self, wait_s: float) -> bool:
        """Wait for the first orders; return whether any arrived. Iterations begin at the job's position."""
        orders = self._control.first_orders(wait_s)
        if orders is not None and self.iteration == 0:
            self.iteration = orders.share_from
        return orders is not None

    @property
    def shares(self) -> tuple[int, ...]:
        """The next share of each rank, by rank; equal shares until orders arrive."""
        self._control.receive()
        orders = self._control.machine.orders
        return tuple(orders.shares) if orders is not None and len(orders.shares) == self.world else self._even

    @property
    def share(self) -> int:
        """The next share of this rank."""
        return self.shares[self.rank]

    @property
    def stopped(self) -> bool:
        """Whether the next iteration must not begin."""
        self._control.receive()
        orders = self._control.machine.orders
        return orders is not None and orders.stop_at is not None and orders.stop_at <= self.iteration

    @property
    def held(self) -> bool:
        """Whether the job is paused: the next iteration must not begin yet."""
        self._control.receive()
        orders = self._control.machine.orders
        if orders is None or not orders.hold or self.stopped:
            return False
        self._control.report_paused(self.iteration)
        return True

    def report(
        self,
        *,
        samples: int,
        loss: float,
        compute_s: float,
        data_s: float = 0.0,
        communication_s: float = 0.0,
        waiting_s: float = 0.0,
        outside_s: float = 0.0,
    ) -> None:
        """Report the iteration that has ended."""
        iteration, generation, position = self.iteration, self._control.generation, self._position
        self._control.say(
            lambda number: IterationReport(
                number=number,
                generation=generation,
                iteration=iteration,
                samples=samples,
                position=position,
                loss=loss if math.isfinite(loss) else 0.0,
                spoilt="" if math.isfinite(loss) else str(loss).removeprefix("-"),
                data_s=data_s,
                compute_s=compute_s,
                push_s=0.0,
                pull_s=communication_s,
                waiting_s=waiting_s,
                coordination_s=0.0,
                outside_s=outside_s,
            )
        )
        self.iteration, self._position = iteration + 1, position + sum(self._even)
        self._control.move(self.iteration, iteration)

    def close(self) -> None:
        """End the rank: send the remaining messages."""
        close_all([self])

    def finish(self) -> None:
        """Report that the rank is over."""
        self._control.finish(self.iteration)

    def disconnect(self, wait_s: float) -> None:
        """Send the remaining messages, for at most so many seconds."""
        self._control.close(wait_s)


def close_all(ranks: Sequence[RemoteRank]) -> None:
    """End these ranks; together they wait for an absent control plane as long as one does."""
    until_s = time.monotonic() + FAREWELL_S
    for rank in ranks:
        rank.finish()
    for rank in ranks:
        rank.disconnect(max(0.0, until_s - time.monotonic()))
