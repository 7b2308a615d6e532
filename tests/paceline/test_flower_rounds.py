"""Flower's rounds: each is an iteration of every client, pause and stop hold, and nothing of ours raises in one."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.paceline.test_adapters import ADAPTERS, ROOT, RUNS_S, environment, with_libraries

pytestmark = with_libraries


@pytest.fixture(scope="module")
def found() -> Any:
    words = [str(ADAPTERS / "python"), str(Path(__file__).with_name("flower_rounds.py"))]
    done = subprocess.run(
        words, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=RUNS_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_clients_that_fail_or_are_not_sampled_have_an_iteration_without_samples(found: Any) -> None:
    batches, reports = found["failing"]
    order = list(dict.fromkeys(int(client) for each in batches for client in each))
    assert sorted(order) == [0, 1, 2]
    for rank, client in enumerate(order):
        trained = [str(client) in each and (client, number) != (1, 1) for number, each in enumerate(batches)]
        assert reports[rank] == [[number, (10 + client) * trains] for number, trains in enumerate(trained)]
    assert [sum(samples == 0 for _, samples in each) for each in reports] != [0, 0, 0]


def test_each_client_finds_the_batch_of_its_share_in_its_configuration(found: Any) -> None:
    batches, _ = found["failing"]
    order = list(dict.fromkeys(int(client) for each in batches for client in each))
    shares = dict(zip(order, (48, 32, 16), strict=True))
    assert all(batch == shares[int(client)] for each in batches for client, batch in each.items())


def test_no_client_trains_in_the_rounds_after_a_stop_and_the_last_arrays_are_returned(found: Any) -> None:
    rounds, ends, has_arrays = found["stopped"]
    assert (rounds, ends, has_arrays) == (2, [2, 2, 2], True)
    assert any("the job was stopped before round 3" in sentence for sentence in found["sentences"])


def test_a_pause_holds_the_next_round_back_until_the_job_is_resumed(found: Any) -> None:
    assert found["paused"] == [5, [0, 1, 2]]


def test_what_cannot_be_balanced_trains_all_rounds_and_is_logged(found: Any) -> None:
    (rounds, batches, has_arrays), untimed, unset = found["unfit"]
    assert (rounds, batches, has_arrays) == (5, {"0": 32, "1": 32, "2": 32}, True)
    assert untimed == [5, {"0": 32, "1": 32, "2": 32}, True]
    assert unset == [5, {"0": 0, "1": 0, "2": 0}, True]
    for sentence in (
        "more than 2 clients took part",
        "clients do not report their training time",
        'the train configuration has no "batch-size"',
    ):
        assert sum(sentence in each for each in found["sentences"]) == 1
