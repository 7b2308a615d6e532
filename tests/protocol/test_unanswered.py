"""A worker that samples its peers says without whom it continued."""

from controlplane.protocol.drawing import PeerSampling
from controlplane.protocol.orders import PeerAddress
from controlplane.protocol.peers import GONE_S, RETRY_S, Passing, PeerBarrier

SAMPLING = PeerSampling(sample=2, staleness=0, seed=1)


def barrier() -> PeerBarrier:
    own = PeerBarrier(0)
    own.enlist([PeerAddress(rank=rank, host="h", port=1, instance=f"w{rank}") for rank in range(3)], (0, 1))
    return own


def passed(own: PeerBarrier, iteration: int, now_s: float, *, reached: tuple[int, ...]) -> float:
    """Ask until it passes, once a second; when that was."""
    while (passing := own.examine(iteration, SAMPLING, now_s)) is not Passing.BEGIN:
        for peer in own.asks if passing is Passing.ASK else []:
            if peer.rank in reached:
                own.answered(peer.rank, peer.instance, iteration, now_s)
            else:
                own.silent(peer.rank, peer.instance, now_s)
        now_s += 1.0
    return now_s


def test_a_peer_without_answers_is_named_by_workers_that_continue() -> None:
    own = barrier()
    at_s = passed(own, 1, 0.0, reached=(1,))
    assert at_s >= GONE_S
    assert (own.unanswered(1), own.sampled) == ([2], {1: 1})
    assert own.unanswered(2) == []  # which it has not come to


def test_it_is_named_no_longer_when_it_has_answered() -> None:
    own = barrier()
    at_s = passed(own, 1, 0.0, reached=(1,))
    passed(own, 2, at_s + RETRY_S, reached=(1, 2))
    assert own.unanswered(2) == []
