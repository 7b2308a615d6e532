"""What ranks and the control plane say to each other, when one of them is of another release."""

from typing import Any

import msgspec
import pytest

from controlplane.protocol.codec import BadFrame, encode, from_rank, to_rank
from controlplane.protocol.messages import MAX_LOGGED, IterationReport, RankHello
from controlplane.protocol.orders import Orders
from tests.protocol.orders import orders

LEAST = {"type": "rank-hello", "number": 1, "rank": 0, "world": 2, "batch_size": 32}
REPORT = {
    "type": "report",
    "number": 2,
    "generation": 0,
    "iteration": 0,
    "samples": 32,
    "position": 0,
    "loss": 1.0,
    "compute_s": 0.1,
    "push_s": 0.0,
    "pull_s": 0.0,
    "waiting_s": 0.0,
    "coordination_s": 0.0,
}


def decoded(document: dict[str, Any]) -> Any:
    return from_rank.decode(msgspec.msgpack.encode(document))


def test_an_older_client_may_report_less() -> None:
    hello = decoded(LEAST)
    assert hello == RankHello(number=1, rank=0, world=2, batch_size=32)
    assert (hello.iteration, hello.prefetched, hello.release) == (None, -1, "")


def test_a_newer_client_may_report_more() -> None:
    assert decoded(LEAST | {"topology": {"rack": 3}, "release": "99.0"}).release == "99.0"
    assert isinstance(decoded(REPORT | {"energy_j": 4.0}), IterationReport)


def test_an_older_client_reads_the_known_fields_of_newer_orders() -> None:
    said = msgspec.to_builtins(orders(shares=[40, 24], shares_version=3)) | {"shards": 7}
    heard = to_rank.decode(msgspec.msgpack.encode(said))
    assert isinstance(heard, Orders)
    assert (heard.shares, heard.shares_version) == ([40, 24], 3)


@pytest.mark.parametrize(
    "change",
    [
        {"world": 0},
        {"world": 10_001},
        {"rank": -1},
        {"batch_size": 0},
        {"host": "a\nb"},
        {"device": "a\0"},
        {"prefetched": -2},
        {"environment": {"": "x"}},
    ],
)
def test_a_hello_out_of_range_is_malformed(change: dict[str, Any]) -> None:
    with pytest.raises(BadFrame, match="not a message of this socket"):
        decoded(LEAST | change)


def test_series_that_a_script_logs_are_bounded_and_finite() -> None:
    assert decoded(REPORT | {"logged": {"lr": 0.1}}).logged == {"lr": 0.1}
    for logged in ({str(place): 1.0 for place in range(MAX_LOGGED + 1)}, {"lr": float("nan")}, {"a\0": 1.0}):
        with pytest.raises(BadFrame):
            decoded(REPORT | {"logged": logged})


def test_a_rank_has_no_words_of_our_own_workers() -> None:
    for kind in ("worker-hello", "computed", "progress", "copies-held", "checkpoint-saved"):
        with pytest.raises(BadFrame):
            decoded({"type": kind, "number": 1})


def test_what_is_reported_is_read_back() -> None:
    hello = RankHello(number=1, rank=1, world=4, batch_size=8, iteration=7, position=56, environment={"torch": "2"})
    assert from_rank.decode(encode(hello)) == hello
