from tests.policies.cluster import resolve


def test_first_n_to_be_ready_make_the_iteration() -> None:
    barrier = resolve("barrier", "backup", backups=2)
    state, quorums = barrier.appoint([0, 1, 2, 3, 4], -1, None)
    assert quorums == []
    for rank in (4, 1):
        state, quorum = barrier.computed(rank, 0, state)
        assert quorum is None
    state, quorum = barrier.computed(0, 0, state)
    assert (quorum.iteration, quorum.ranks) == (0, [0, 1, 4])
    assert quorum.reason == "the first 3 of 5 workers are ready with iteration 0; it continues without w2 w3"


def test_who_comes_late_names_no_one() -> None:
    barrier = resolve("barrier", "backup", backups=1)
    state, _ = barrier.appoint([0, 1], -1, None)
    state, quorum = barrier.computed(0, 0, state)
    assert quorum is not None
    assert barrier.computed(1, 0, state)[1] is None


def test_reported_twice_counts_once() -> None:
    barrier = resolve("barrier", "backup", backups=1)
    state, _ = barrier.appoint([0, 1, 2], -1, None)
    for _ in range(2):
        state, quorum = barrier.computed(2, 0, state)
        assert quorum is None


def test_dead_worker_takes_the_place_of_a_backup() -> None:
    barrier = resolve("barrier", "backup", backups=1)
    state, _ = barrier.appoint([0, 1, 2], -1, None)
    state, _ = barrier.appoint([0, 2], -1, state)
    assert state.needed == 2


def test_death_of_one_who_was_needed_names_those_who_are_ready() -> None:
    barrier = resolve("barrier", "backup", backups=0)
    state, _ = barrier.appoint([0, 1, 2], -1, None)
    state, _ = barrier.computed(0, 0, state)
    state, _ = barrier.computed(2, 0, state)
    state, quorums = barrier.appoint([0, 2], -1, state)
    assert [(quorum.iteration, quorum.ranks) for quorum in quorums] == [(0, [0, 2])]


def test_more_backups_than_workers_still_need_one() -> None:
    barrier = resolve("barrier", "backup", backups=9)
    state, _ = barrier.appoint([0, 1], -1, None)
    assert barrier.computed(1, 0, state)[1].ranks == [1]
