"""Where workers sample one another, one that others cannot reach is a finding, with who misses it and the cure."""

from controlplane.core.commands import CloseFlag, RaiseFlag
from tests.core.story import Story, of

PEERS = {"barrier": {"name": "pbsp", "sampling": "peers", "sample": 2}}


def told() -> Story:
    return Story(workers=4, servers=1, synchronization=PEERS).running()


def test_a_peer_that_does_not_answer_is_named_with_those_that_asked_and_the_cure() -> None:
    story = told()
    (flag,) = of(RaiseFlag, story.report(0, 0, unanswered=[3]))
    assert (flag.rank, flag.kind, flag.subject, flag.persistence) == (3, "unanswered", "worker", "lasting")
    assert flag.evidence == {"asked_by": ["w0"]}
    assert flag.reason == (
        "w3 does not answer w0, which asked how far it is: the barrier no longer keeps them within its bound of w3. Let"
        " 127.0.0.1 reach 127.0.0.1 at port 8003, or change the barrier to sampling: central"
    )
    assert of(RaiseFlag, story.report(1, 0, unanswered=[3])) == []


def test_the_finding_ends_when_everyone_has_an_answer() -> None:
    story = told()
    story.report(0, 0, unanswered=[3])
    story.report(1, 0, unanswered=[3])
    assert of(CloseFlag, story.report(0, 1)) == []
    (closed,) = of(CloseFlag, story.report(1, 1))
    assert closed.reason == "every worker that samples it has its answers again"
    assert of(CloseFlag, story.report(1, 2)) == []


def test_a_worker_that_is_gone_is_no_finding() -> None:
    story = told()
    story.kill(3)
    assert of(RaiseFlag, story.report(0, 0, unanswered=[3])) == []
