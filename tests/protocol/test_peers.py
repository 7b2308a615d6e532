"""One worker that samples the others itself, step by step."""

from controlplane.protocol.drawing import PeerSampling
from controlplane.protocol.orders import Orders, PeerAddress
from controlplane.protocol.peers import FORGOTTEN_S, GONE_S, RETRY_S, Passing, PeerBarrier
from controlplane.protocol.worker import Step, WorkerMachine

ALL = PeerSampling(sample=3)


def peer(rank: int, life: int = 1, from_iteration: int = 0) -> PeerAddress:
    return PeerAddress(
        rank=rank, host="127.0.0.1", port=5000 + rank, instance=f"w{rank}.0.{life}", from_iteration=from_iteration
    )


def barrier(rank: int = 0, peers: int = 4) -> PeerBarrier:
    made = PeerBarrier(rank)
    made.enlist([peer(each) for each in range(peers)], (0, 1))
    return made


def answer(made: PeerBarrier, at_s: float, **progress: int) -> None:
    for title, iteration in progress.items():
        made.answered(int(title[1:]), f"{title}.0.1", iteration, at_s)


def asked(made: PeerBarrier) -> list[int]:
    return [each.rank for each in made.asks]


def test_it_asks_its_sample_and_passes_when_all_have_come_as_far() -> None:
    made = barrier()
    assert made.examine(5, ALL, 0.0) is Passing.ASK
    assert asked(made) == [1, 2, 3]
    answer(made, 0.1, w1=5, w2=6)
    assert made.examine(5, ALL, 0.1) is Passing.WAIT
    answer(made, 0.2, w3=5)
    assert made.examine(5, ALL, 0.2) is Passing.BEGIN
    assert made.sampled == {1: 5, 2: 6, 3: 5}
    assert made.questions == 3


def test_a_peer_may_be_as_far_behind_as_the_staleness() -> None:
    sampling = PeerSampling(sample=3, staleness=2)
    made = barrier()
    made.examine(5, sampling, 0.0)
    answer(made, 0.0, w1=3, w2=3, w3=2)
    assert made.examine(5, sampling, 0.0) is Passing.WAIT
    answer(made, 0.0, w3=3)
    assert made.examine(5, sampling, 0.0) is Passing.BEGIN


def test_known_progress_of_peers_is_not_requested_again() -> None:
    made = barrier()
    made.examine(2, ALL, 0.0)
    answer(made, 0.0, w1=9, w2=9, w3=2)
    assert made.examine(2, ALL, 0.0) is Passing.BEGIN
    assert made.examine(3, ALL, 1.0) is Passing.ASK
    assert asked(made) == [3]


def test_it_repeats_the_request_after_a_part_of_its_own_iteration() -> None:
    made = barrier()
    made.examine(2, ALL, 0.0)
    answer(made, 0.0, w1=2, w2=2, w3=2)
    assert made.examine(2, ALL, 0.0) is Passing.BEGIN
    made.examine(3, ALL, 2.0)
    answer(made, 2.0, w1=3, w2=3, w3=2)
    assert made.examine(3, ALL, 2.0) is Passing.WAIT
    assert made.wake_at_s == 2.0 + 0.25 * 2.0
    assert made.examine(3, ALL, 2.4) is Passing.WAIT
    assert made.examine(3, ALL, 2.5) is Passing.ASK
    assert asked(made) == [3]


def test_an_unresponsive_peer_is_replaced_by_another() -> None:
    sampling = PeerSampling(sample=1)
    made = barrier()
    made.examine(4, sampling, 0.0)
    (first,) = asked(made)
    made.silent(first, f"w{first}.0.1", 1.0)
    assert made.examine(4, sampling, 1.0) is Passing.ASK
    (second,) = asked(made)
    assert second != first
    answer(made, 1.0, **{f"w{second}": 4})
    assert made.examine(4, sampling, 1.0) is Passing.BEGIN


def test_two_missing_responses_long_after_one_another_make_no_peer_gone() -> None:
    made, sampling = barrier(peers=2), PeerSampling(sample=1)
    for iteration, now, gone in ((4, 0.0, []), (5, 2 * FORGOTTEN_S, []), (6, 2 * FORGOTTEN_S + GONE_S, [1])):
        assert made.examine(iteration, sampling, now) is Passing.ASK
        made.silent(1, "w1.0.1", now)
        assert made.gone == gone


def test_without_peers_to_ask_it_waits_until_unresponsive_ones_are_removed() -> None:
    made, now = barrier(), 0.0
    for _ in range(100):
        passing = made.examine(4, ALL, now)
        if passing is Passing.BEGIN:
            break
        for each in made.asks if passing is Passing.ASK else []:
            if each.rank == 3:
                made.silent(3, each.instance, now)
            else:
                made.answered(each.rank, each.instance, 4, now)
        if passing is Passing.WAIT:
            assert made.wake_at_s is not None
            now = max(now + 0.1, made.wake_at_s)
    assert GONE_S <= now < GONE_S + 0.5
    assert made.gone == [3]
    assert made.sampled == {1: 4, 2: 4}


def test_one_that_is_gone_is_requested_again_later_and_counts_when_it_answers() -> None:
    made, now = barrier(peers=2), 0.0
    while not made.gone:
        if made.examine(4, ALL, now) is Passing.ASK:
            made.silent(1, "w1.0.1", now)
        now += 0.5
    gone_at = now
    while made.examine(4, ALL, now) is not Passing.ASK:
        now += 0.5
    assert now - gone_at >= RETRY_S - 1.0
    answer(made, now, w1=4)
    assert made.gone == []
    assert made.examine(4, ALL, now) is Passing.BEGIN


def test_a_worker_that_reaches_no_one_does_not_continue() -> None:
    made = barrier(peers=3)
    for step in range(600):
        passing = made.examine(4, ALL, step * 0.1)
        assert passing is not Passing.BEGIN
        for each in made.asks if passing is Passing.ASK else []:
            made.silent(each.rank, each.instance, step * 0.1)
    assert made.gone == [1, 2]


def test_a_worker_alone_continues() -> None:
    assert barrier(peers=1).examine(4, ALL, 0.0) is Passing.BEGIN
    assert barrier().examine(4, PeerSampling(sample=0), 0.0) is Passing.BEGIN


def test_without_a_roster_it_waits_for_one() -> None:
    made = PeerBarrier(0)
    assert made.examine(4, ALL, 0.0) is Passing.WAIT
    assert made.wake_at_s is not None
    made.enlist([peer(0)], (0, 1))
    assert made.examine(4, ALL, 0.1) is Passing.BEGIN


def test_an_answer_of_an_earlier_instance_counts_for_nothing() -> None:
    made = barrier(peers=2)
    made.examine(4, ALL, 0.0)
    made.enlist([peer(0), peer(1, life=2)], (0, 2))
    made.answered(1, "w1.0.1", 9, 0.0)
    assert made.examine(4, ALL, 0.0) is Passing.ASK
    assert made.asks[0].instance == "w1.0.2"


def test_one_that_joins_need_not_have_done_what_was_before() -> None:
    made = barrier(peers=2)
    made.enlist([peer(0), peer(1, life=2, from_iteration=4)], (0, 2))
    assert made.examine(4, ALL, 0.0) is Passing.BEGIN
    assert made.examine(5, ALL, 0.0) is Passing.ASK


def test_an_older_roster_changes_nothing() -> None:
    made = barrier(peers=2)
    made.enlist([peer(0)], (0, 0))
    assert made.examine(4, ALL, 0.0) is Passing.ASK


def orders(**fields: object) -> Orders:
    return Orders(
        **{
            "incarnation": 0,
            "generation": 1,
            "sequence": 1,
            "share": 8,
            "offset": 0,
            "global_batch": 8,
            "origin_iteration": 0,
            "origin_position": 0,
            "share_from": 0,
            "share_until": 10,
            "watermark": 10,
            "placement_version": 1,
            "sampling": PeerSampling(sample=1),
        }
        | fields
    )


def machine() -> WorkerMachine:
    made = WorkerMachine(lambda build: None, rank=0)
    made.peers.enlist([peer(0), peer(1)], (0, 1))
    made.receive(orders())
    return made


def test_a_worker_asks_before_it_pulls() -> None:
    made = machine()
    made.peers.enlist([peer(0), peer(1, life=2)], (0, 2))
    assert made.next(0.0) is Step.PULL  # of iteration 0 everyone has finished those before
    made.pulled(0.0)
    made.next(0.0)
    made.computed(8)
    made.next(0.0)
    made.pushed()
    assert made.next(0.0) is Step.ASK
    made.peers.answered(1, "w1.0.2", 0, 0.0)
    assert made.next(0.0) is Step.WAIT
    assert made.wake_at_s is not None
    made.peers.answered(1, "w1.0.2", 1, 0.0)
    assert made.next(0.0) is Step.PULL


def test_a_worker_that_waits_for_others_follows_newer_orders() -> None:
    made = machine()
    made.receive(orders(sequence=2, skip_to=4))
    assert made.next(0.0) is Step.ASK
    made.receive(orders(sequence=3, skip_to=4, hold=True))
    assert made.next(0.0) is Step.WAIT
    assert made.wake_at_s is None
    made.receive(orders(sequence=4, skip_to=4, sampling=None))
    assert made.next(0.0) is Step.PULL


def test_at_the_end_of_a_job_no_one_waits_for_others() -> None:
    made = machine()
    made.receive(orders(sequence=2, skip_to=4, stop_at=6))
    assert made.next(0.0) is Step.PULL
