"""Aggregating servers (as in BytePS): servers only sum, every worker holds the parameters and applies each step itself.

A pull for an iteration returns the mean gradient of the previous one. All workers apply the same means in the same
order, so their parameters stay equal, and moving a block transfers no state except the latest mean.
"""

import threading
from collections.abc import Callable

import torch
from msgspec.structs import replace

from controlplane.protocol.spec import JobSpec, LinkEmulation, SpecError
from workers.trainer.exchange import Exchange
from workers.trainer.parameters import LocalParameters
from workers.trainer.round import Round
from workers.transport.encryption import PLAIN, Encryption
from workers.transport.frames import Header
from workers.transport.handshake import Peer
from workers.workloads.rules import SumRule


class AggregatingExchange(Exchange):
    """An exchange whose pulls apply the step before they return the parameters; ``stopping`` ends every operation.

    Raises:
        SpecError: if the workload's updates are not gradients: workers cannot apply their mean.
    """

    def __init__(
        self,
        peer: Peer,
        stopping: threading.Event,
        held: LocalParameters,
        spec: JobSpec,
        in_reach: Callable[[], bool],
        encryption: Encryption = PLAIN,
        link: LinkEmulation | None = None,
    ) -> None:
        if isinstance(held.rule, SumRule):
            expected = f"stateful with workload {spec.workload.name}, whose updates are not gradients"
            raise SpecError("server_mode", spec.server_mode, expected)
        super().__init__(peer, stopping, in_reach=in_reach, encryption=encryption, link=link)
        self._held = held
        self._mean = torch.empty(held.values.numel())

    def pull(self, parameters: torch.Tensor, stamp: Header) -> Round:
        """The parameters before the iteration of ``stamp``; raises as ``Exchange.pull``."""
        outcome = Round(held_s=0.0)
        while self._held.version < stamp.iteration:
            outcome = super().pull(self._mean, replace(stamp, iteration=self._held.version + 1))
            if outcome.moved or outcome.stale:
                return outcome
            self._held.step(self._mean, 1)
        parameters.copy_(self._held.values)
        return outcome
