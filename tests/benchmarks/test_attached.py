"""The benchmark of attached scripts."""

from benchmarks.training.attached import MIB, failures, kept_mib, launch


def test_a_plain_script_alone_tells_its_iterations_and_its_memory() -> None:
    found = launch({"speeds": [0.0], "batch_size": 8, "layers": 1, "pairs": 1, "iterations": 3, "only": "plain"}, 1, {})

    assert [len(block) for block in found["plain"]] == [3]
    assert found["resident"] > 0


def test_what_a_rank_keeps_is_measured_whatever_the_bench_frees_meanwhile() -> None:
    earlier = [bytes(MIB) for _ in range(100)]
    earlier.clear()
    assert 5 < kept_mib() < 30


def test_an_outage_is_judged_without_the_script_that_runs_beside_it() -> None:
    document = {"outage": {"ratio": 1.6, "bystander": 2.0, "lost": 0}}
    assert failures(document) == ["outage: 1.600 (a plain script beside it: 2.000), expected at most 1.5"]


def test_even_machines_are_judged_by_the_mean() -> None:
    assert failures({"even": {"ratio": 1.02, "quartile_ratio": 1.0}}) == ["even: 1.020, expected at most 1.01"]
