"""One script of orders, three workers: the machine by itself, the simulated worker, and the trainer with a real server.

They start the same iterations with the same samples, and say and report the same.
"""

from itertools import accumulate
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.protocol.messages import Computed, Quiesced, WorkerFinished
from controlplane.protocol.orders import Orders, Piece, Range
from tests.contracts import plain, simulated, trained
from tests.contracts.script import Moment, Script
from tests.protocol import orders as made
from tests.support.examples import examples

PATIENT_S: Final = 1e6
"""A share is awaited for longer than any script takes."""


def orders(at: int, **changes: Any) -> Orders:
    """The orders of sequence number ``at``."""
    return made.orders(**{"sequence": at, "decision_timeout_s": PATIENT_S} | changes)


def held(iteration: int, sequence: int) -> Quiesced:
    return Quiesced(number=0, generation=1, iteration=iteration, sequence=sequence)


def finished(iteration: int) -> WorkerFinished:
    return WorkerFinished(number=0, iteration=iteration, model_saved=False)


def granted(at: int, *, share: int, **changes: Any) -> Orders:
    """Leave for iteration ``at`` alone, with that share."""
    return orders(at, **{"watermark": at, "share": share, "share_from": at, "share_until": at} | changes)


IN_PIECES: Final[dict[str, Any]] = {"progress_s": PATIENT_S}
"""The trainer looks at its orders after each micro-batch only where it is to say how far it is."""

SCRIPTS: Final[dict[str, tuple[Script, list[tuple[int, int, int, int]], list[Any]]]] = {
    "one iteration at a time, each with a share of its own": (
        Script((granted(0, share=4), granted(1, share=6), granted(2, share=2))),
        [(1, 0, 0, 4), (1, 1, 16, 6), (1, 2, 32, 2)],
        [],
    ),
    "orders that were lost: the newest name all that is granted": (
        Script((granted(0, share=4), orders(3, watermark=3, share=3, share_from=2))),
        [(1, 0, 0, 4), (1, 1, 16, 4), (1, 2, 32, 3), (1, 3, 48, 3)],
        [],
    ),
    "orders that come again, or late": (
        Script((granted(0, share=4), granted(0, share=9), granted(2, share=2), granted(1, share=6))),
        [(1, 0, 0, 4), (1, 1, 16, 4), (1, 2, 32, 2)],
        [],
    ),
    "orders in another order than they were issued": (
        Script((granted(0, share=4), granted(3, share=5), granted(1, share=6), granted(2, share=2))),
        [(1, 0, 0, 4), (1, 1, 16, 4), (1, 2, 32, 4), (1, 3, 48, 5)],
        [],
    ),
    "late orders of an older generation, though with a higher number": (
        Script((orders(0, generation=2, watermark=1), orders(9, watermark=5, share=7, skip_to=5))),
        [(2, 0, 0, 4), (2, 1, 16, 4)],
        [],
    ),
    "late orders while it computes, which would have cut and skipped it": (
        Script(
            (orders(3, watermark=1, **IN_PIECES),),
            (
                Moment(where="compute", iteration=0, after=2, heard=(orders(1, watermark=4, cut=0, **IN_PIECES),)),
                Moment(where="compute", iteration=1, after=2, heard=(orders(2, watermark=4, skip_to=4, **IN_PIECES),)),
            ),
        ),
        [(1, 0, 0, 4), (1, 1, 16, 4)],
        [],
    ),
    "a skip that is repeated, by the same orders and by newer ones": (
        Script(
            (orders(0, watermark=0), orders(1, watermark=5, skip_to=5, **IN_PIECES)),
            (
                Moment(
                    where="compute",
                    iteration=5,
                    after=2,
                    heard=tuple(orders(at, watermark=5, skip_to=5, **IN_PIECES) for at in (1, 2)),
                ),
            ),
        ),
        [(1, 0, 0, 4), (1, 5, 80, 4)],
        [],
    ),
    "a hold that is repeated by the same orders, and late ones without it": (
        Script(
            (
                orders(0, watermark=0),
                *(orders(2, watermark=5, hold=True) for _ in range(2)),
                orders(1, watermark=5),
            )
        ),
        [(1, 0, 0, 4)],
        [held(1, 2)],
    ),
    "a share that never comes": (
        Script((orders(0, watermark=2, share_until=0, decision_timeout_s=0.0),)),
        [(1, 0, 0, 4), (1, 1, 16, 4), (1, 2, 32, 4)],
        [],
    ),
    "a share that comes while it is awaited": (
        Script((orders(0, watermark=1, share_until=0), orders(1, watermark=1, share=7, share_from=1))),
        [(1, 0, 0, 4), (1, 1, 16, 7)],
        [],
    ),
    "a skip at a boundary": (
        Script((orders(0, watermark=0), orders(1, watermark=5, skip_to=5))),
        [(1, 0, 0, 4), (1, 5, 80, 4)],
        [],
    ),
    "a skip while the parameters are pulled": (
        Script(
            (orders(0, watermark=2),), (Moment(where="pull", iteration=1, heard=(orders(1, watermark=4, skip_to=4),)),)
        ),
        [(1, 0, 0, 4), (1, 4, 64, 4)],
        [],
    ),
    "a skip while a share is awaited": (
        Script((orders(0, watermark=1, share_until=0), orders(1, watermark=3, skip_to=3))),
        [(1, 0, 0, 4), (1, 3, 48, 4)],
        [],
    ),
    "a skip while it computes": (
        Script(
            (orders(0, watermark=1, **IN_PIECES),),
            (Moment(where="compute", iteration=1, after=2, heard=(orders(1, watermark=3, skip_to=3, **IN_PIECES),)),),
        ),
        [(1, 0, 0, 4), (1, 3, 48, 4)],
        [],
    ),
    "a hold, a second one, and its end": (
        Script((orders(0, watermark=5, hold=True), orders(1, watermark=5, hold=True), orders(2, watermark=0))),
        [(1, 0, 0, 4)],
        [held(0, 0), held(0, 1)],
    ),
    "a hold while it computes": (
        Script(
            (orders(0, watermark=5, **IN_PIECES),),
            (Moment(where="compute", iteration=1, heard=(orders(1, watermark=5, hold=True),)),),
        ),
        [(1, 0, 0, 4), (1, 1, 16, 4)],
        [held(2, 1)],
    ),
    "a cut while it computes": (
        Script(
            (orders(0, watermark=1, **IN_PIECES),),
            (Moment(where="compute", iteration=0, after=3, heard=(orders(1, watermark=1, cut=0, **IN_PIECES),)),),
        ),
        [(1, 0, 0, 3), (1, 1, 16, 4)],
        [],
    ),
    "a cut before it computes, and one of an iteration that is over": (
        Script((orders(0, watermark=0, cut=0, **IN_PIECES), orders(1, watermark=1, cut=0, **IN_PIECES))),
        [(1, 0, 0, 0), (1, 1, 16, 4)],
        [],
    ),
    "updates that are announced": (
        Script((orders(0, watermark=1, announce=True),)),
        [(1, 0, 0, 4), (1, 1, 16, 4)],
        [Computed(number=0, generation=1, iteration=k, samples=4) for k in (0, 1)],
    ),
    "a stop while a share is awaited": (
        Script((orders(0, watermark=5, share_until=0), orders(1, watermark=5, share_until=0, stop_at=1))),
        [(1, 0, 0, 4)],
        [finished(1)],
    ),
    "a stop of later iterations": (
        Script((orders(0, watermark=5, stop_at=2), orders(1, watermark=9))),
        [(1, 0, 0, 4), (1, 1, 16, 4)],
        [finished(2)],
    ),
    "a stop on hold": (
        Script((orders(0, watermark=5, hold=True), orders(1, watermark=5, hold=True, stop_at=0))),
        [],
        [held(0, 0), finished(0)],
    ),
    "a drain while it computes: what was granted is done, and nothing else": (
        Script(
            (orders(0, watermark=1, **IN_PIECES), orders(2, watermark=1)),
            (Moment(where="compute", iteration=0, after=2, heard=(orders(1, watermark=1, **IN_PIECES),)),),
        ),
        [(1, 0, 0, 4), (1, 1, 16, 4)],
        [],
    ),
    "a drain with an end of its own, repeated, and late orders that granted more": (
        Script(
            (orders(0, watermark=0), *(orders(at, watermark=5, stop_at=2) for at in (2, 2, 3)), orders(1, watermark=9))
        ),
        [(1, 0, 0, 4), (1, 1, 16, 4)],
        [finished(2)],
    ),
    "a drain that is withdrawn: it counts again in a later generation": (
        Script(
            (
                orders(0, watermark=1),
                orders(1, watermark=1),
                orders(2, generation=3, watermark=6, share=5, share_from=6, skip_to=6),
                orders(9, generation=2, watermark=8),
            )
        ),
        [(1, 0, 0, 4), (1, 1, 16, 4), (3, 6, 96, 5)],
        [],
    ),
    "ranges that were handed out": (
        Script(
            (
                orders(0, watermark=1, ranges=[Range(first=0, last=1, position=100, share=5)]),
                orders(1, watermark=2, share_from=3, ranges=[Range(first=2, last=2, position=40, share=3)]),
            )
        ),
        [(1, 0, 100, 5), (1, 1, 105, 5), (1, 2, 40, 3)],
        [],
    ),
    "pieces of a split": (
        Script(
            (
                orders(
                    0,
                    watermark=0,
                    share=5,
                    pieces_of=0,
                    pieces=[Piece(split=0, start=8, stop=10), Piece(split=1, start=20, stop=23)],
                ),
                orders(1, watermark=1, share=0, pieces_of=1),
            )
        ),
        [(1, 0, 8, 5), (1, 1, 0, 0)],
        [],
    ),
    "a time budget, beyond the share and below it": (
        Script(
            (
                orders(0, watermark=0, share=4, budget_s=5.5, ceiling=9),
                orders(1, watermark=1, share=4, share_from=1, budget_s=1.5, ceiling=9),
                orders(2, watermark=2, share=4, share_from=2, budget_s=50.0, ceiling=6),
            )
        ),
        [(1, 0, 0, 6), (1, 1, 16, 2), (1, 2, 32, 6)],
        [],
    ),
    "a worker that joins again": (
        Script((orders(7, generation=3, watermark=6, share_from=5, origin_iteration=5, origin_position=96),)),
        [(3, 5, 96, 4), (3, 6, 112, 4)],
        [],
    ),
    "a newer generation in the middle of a push": (
        Script(
            (orders(0, watermark=0),),
            (Moment(where="push", iteration=0, heard=(orders(0, generation=2, watermark=1),)),),
        ),
        [(2, 0, 0, 4), (2, 1, 16, 4)],
        [],
    ),
    "a newer generation in the middle of a push, of which the worker hears later": (
        Script(
            (orders(0, watermark=0), orders(1, watermark=2), orders(0, generation=2, watermark=1)),
            (Moment(where="push", iteration=0, term=(0, 2)),),
        ),
        [(2, 0, 0, 4), (2, 1, 16, 4)],
        [],
    ),
    "a newer generation in the middle of a push, which owes the iteration no more": (
        Script(
            (orders(0, watermark=0),),
            (Moment(where="push", iteration=0, heard=(orders(0, generation=2, watermark=3, skip_to=3),)),),
        ),
        [(2, 3, 48, 4)],
        [],
    ),
    "a newer incarnation in the middle of a push": (
        Script(
            (orders(0, watermark=0),),
            (Moment(where="push", iteration=0, heard=(orders(0, incarnation=1, watermark=1),)),),
        ),
        [(1, 0, 0, 4), (1, 1, 16, 4)],
        [],
    ),
    "a newer incarnation": (
        Script((orders(8, watermark=0), orders(0, incarnation=1, generation=1, watermark=1))),
        [(1, 0, 0, 4), (1, 1, 16, 4)],
        [],
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_worker_makes_the_same_of(name: str) -> None:
    script, reported, said = SCRIPTS[name]
    stage = plain.play(script)
    assert (stage.reported, stage.said) == (reported, said)
    assert simulated.play(script).outcome == stage.outcome
    assert trained.play(script).outcome == stage.outcome


change = st.fixed_dictionaries(
    {
        "granted": st.integers(0, 2),
        "share": st.integers(0, 6),
        "skip": st.booleans(),
        "hold": st.booleans(),
        "announce": st.booleans(),
        "renewed": st.booleans(),
        "budget_s": st.sampled_from([None, None, 1.5, 4.5]),
        "heard": st.lists(st.integers(0, 4), max_size=3),
    }
)
"""One change of orders. ``heard``: after how many later ones each copy arrives; none does where they are lost."""


def delivered(changes: list[dict[str, Any]]) -> Script:
    """Orders with these changes, as a worker hears them: lost, late, repeated and in another order."""
    watermarks = list(accumulate((each["granted"] for each in changes), initial=-1))[1:]
    generations = accumulate((each["renewed"] for each in changes), initial=1)
    issued = [
        orders(
            at,
            watermark=watermark,
            generation=generation,
            share=each["share"],
            share_from=max(0, watermark),
            skip_to=max(0, watermark) if each["skip"] else 0,
            hold=each["hold"],
            announce=each["announce"],
            budget_s=each["budget_s"],
            ceiling=8,
        )
        for at, (each, watermark, generation) in enumerate(zip(changes, watermarks, generations, strict=False))
    ]
    copies = [(at + late, at) for at, each in enumerate(changes) for late in each["heard"]]
    return Script(tuple(issued[at] for _, at in sorted(copies)))


@given(st.lists(change, min_size=1, max_size=8))
def test_the_simulated_worker_makes_of_any_orders_what_the_machine_does(changes: list[dict[str, Any]]) -> None:
    script = delivered(changes)
    assert simulated.play(script).outcome == plain.play(script).outcome


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(change, min_size=1, max_size=8))
def test_the_trainer_makes_of_any_orders_what_the_machine_does(changes: list[dict[str, Any]]) -> None:
    script = delivered(changes)
    assert trained.play(script).outcome == plain.play(script).outcome
