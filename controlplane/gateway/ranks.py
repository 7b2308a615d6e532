"""The sockets of attached ranks: processes started by another launcher, authenticated by their job's token."""

from typing import Any, Final

from controlplane.core.events import Event, WorkerMessageReceived
from controlplane.gateway import close_codes
from controlplane.gateway.close_codes import Refusal
from controlplane.gateway.connections import JobConnections
from controlplane.gateway.handshake import Claim, rank_verdict, unauthorised
from controlplane.gateway.hub import Hub
from controlplane.gateway.processes import ProcessSocket
from controlplane.gateway.sockets import Socket
from controlplane.protocol.codec import from_rank
from controlplane.protocol.keys import secret_digest
from controlplane.protocol.messages import RankMessage
from controlplane.protocol.spec import MAX_WORKERS
from controlplane.protocol.text import is_plain

MAX_INSTANCE: Final = 100


class RankSocket(ProcessSocket[RankMessage]):
    """``/ws/rank/{job}/{rank}``. A rank is disconnected when its token is revoked."""

    role = "worker"
    codec = from_rank

    def __init__(self, claim: Claim) -> None:
        super().__init__(claim)
        self._digest = secret_digest(claim.credential)

    async def _authentication_failure(self) -> Refusal | None:
        peer = self.peer
        if not (1 <= len(peer.instance) <= MAX_INSTANCE and is_plain(peer.instance)):
            return unauthorised(
                f"X-Paceline-Instance: expected 1 to {MAX_INSTANCE} characters that name this instance of the rank"
            )
        if peer.index >= MAX_WORKERS:
            return unauthorised(f"rank {peer.index}: expected one below {MAX_WORKERS}")
        verdict = await rank_verdict(self.claim)
        if not verdict.good:
            return unauthorised(verdict.sentence)
        return Refusal(close_codes.JOB_OVER) if verdict.job_over else None

    async def _serve(self, hub: Hub, connections: JobConnections, socket: Socket) -> None:
        hub.ranks[socket] = self._digest
        try:
            await super()._serve(hub, connections, socket)
        finally:
            del hub.ranks[socket]

    def event(self, received: Any) -> Event:
        """The log event for a rank's message, the same as for a worker's."""
        return WorkerMessageReceived(rank=self.peer.index, instance=self.peer.instance, message=received)
