from tests.policies.barriers.crowd import Crowd


def test_asp_lets_everyone_continue() -> None:
    crowd = Crowd("asp", 3)
    for _ in range(30):
        assert crowd.finish(2).releases.keys() == {2}
    assert crowd.going == [0, 1, 2]


def test_ssp_grants_up_to_its_staleness_past_the_slowest() -> None:
    crowd = Crowd("ssp", 3, staleness=2)
    assert crowd.watermark == {0: 2, 1: 2, 2: 2}
    for _ in range(3):
        passage = crowd.finish(0)
    assert passage.waits[0].waits_for == [1, 2]
    assert passage.waits[0].reason == "waits for w1 w2, 3 iterations behind, the slowest of all; 2 iterations allowed"


def test_ssp_lets_all_who_wait_go_when_the_last_of_the_slowest_arrives() -> None:
    crowd = Crowd("ssp", 4, staleness=1)
    for rank in (0, 0, 1, 1):
        crowd.finish(rank)
    assert crowd.finish(2).releases.keys() == {2}
    assert crowd.finish(3).releases.keys() == {0, 1, 3}
    assert crowd.watermark == {0: 2, 1: 2, 2: 1, 3: 2}


def test_ssp_names_only_some_of_many_slowest() -> None:
    crowd = Crowd("ssp", 30, staleness=0)
    assert (
        crowd.finish(0).waits[0].reason.startswith("waits for w1 w2 w3 w4 w5 w6 w7 w8 and 21 more, 1 iteration behind")
    )


def test_smaller_staleness_after_a_change_still_lets_someone_go() -> None:
    crowd = Crowd("ssp", 2, staleness=5)
    for _ in range(6):
        crowd.finish(0)
    smaller = Crowd("ssp", 2, staleness=1)
    smaller.done, smaller.watermark = dict(crowd.done), {0: 5, 1: -1}
    smaller.begin()
    assert smaller.going == [1]
    for _ in range(4):
        assert 0 not in smaller.finish(1).releases
    assert 0 in smaller.finish(1).releases
