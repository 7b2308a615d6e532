"""Simulated servers and a real server's blocks let the same updates count, and close the same iterations."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from controlplane.protocol.orders import Member, ServerOrders
from controlplane.simulator.kernel import Kernel
from controlplane.simulator.servers import Servers
from workers.server.quorum import NO_ROSTER, Quorum, Verdict, roster_of
from workers.transport.handshake import Peer

RANKS = (0, 1, 2)


class Live:
    """The open iteration of one block, as ``workers/server/lockstep.py`` drives it, without values."""

    def __init__(self) -> None:
        self.quorum, self.roster = Quorum(), NO_ROSTER

    def receive(self, orders: ServerOrders) -> None:
        self.roster = roster_of(orders)
        if self.quorum.iteration < self.roster.skip_to:
            self.quorum = Quorum(self.roster.skip_to)
        if self.quorum.appoint(self.roster):
            self.quorum.close(self.roster)

    def push(self, peer: Peer, iteration: int) -> Verdict:
        verdict = self.quorum.judge(self.roster, self.roster.term, peer, iteration)
        if verdict is Verdict.COUNT and self.quorum.count(peer, self.roster):
            self.quorum.close(self.roster)
        return verdict


def orders(
    sequence: int, members: Mapping[Peer, int], *, quorums: dict[int, list[int]], named_from: int | None
) -> ServerOrders:
    return ServerOrders(
        incarnation=0,
        generation=1,
        sequence=sequence,
        members=[
            Member(rank=peer.rank, instance=peer.instance, from_iteration=first) for peer, first in members.items()
        ],
        placement_version=1,
        blocks=[],
        quorums=quorums,
        named_from=named_from,
    )


workers = st.sampled_from(RANKS)
roster = st.dictionaries(workers, st.tuples(st.integers(0, 1), st.integers(0, 2)), min_size=1)
"""By rank: its instance, and how many iterations after the open one it counts from."""
named = st.sampled_from([None, "later"]) | st.lists(workers, min_size=1, unique=True)
"""Whether workers of the open iteration are named: no, not yet, or these."""
happenings = st.lists(st.tuples(roster, named) | st.tuples(workers, st.integers(0, 1)), min_size=1, max_size=40)
"""Orders, or an update of a worker for the open iteration or the one before."""


@given(happenings)
def test_simulated_servers_count_and_close_as_a_real_block_does(happenings: list[tuple[object, object]]) -> None:
    live, simulated = Live(), Servers(Kernel(), None)
    instances = dict.fromkeys(RANKS, "0")
    for at, (what, more) in enumerate(happenings):
        k = simulated.version
        if isinstance(what, dict):
            instances |= {rank: str(instance) for rank, (instance, _) in what.items()}
            members = {Peer(rank, instances[rank]): k + later for rank, (_, later) in what.items()}
            quorums = {k: sorted(more)} if isinstance(more, list) else {}
            received = orders(at, members, quorums=quorums, named_from=k if more == "later" else None)
            live.receive(received)
            simulated.receive(received)
        elif isinstance(what, int) and isinstance(more, int) and simulated.orders is not None and k >= more:
            verdict = live.push(Peer(what, instances[what]), k - more)
            if verdict is not Verdict.REPEATED:  # a simulated update arrives once
                assert simulated.push(what, k - more, 1) == (verdict is Verdict.COUNT), at
        assert simulated.version == live.quorum.iteration, at
