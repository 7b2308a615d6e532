import pytest

from benchmarks.offline.simulator import LARGEST, Row, failures, measure


def row(**changes: object) -> Row:
    fields = {
        "barrier": LARGEST[0],
        "workers": LARGEST[1],
        "iterations": LARGEST[2],
        "cpu_s": 9.0,
        "updates": 1_000_000,
        "entries": 1_020_000,
        "happened": 1_200_000,
        "peak_mb": 150.0,
        "state": "succeeded",
    }
    return Row(**(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("barrier", ["bsp", "ssp", "pbsp"])
def test_a_job_is_measured_to_its_end(barrier: str) -> None:
    measured = measure(barrier, 50, 4)
    assert (measured.state, measured.updates) == ("succeeded", 200)
    assert measured.entries > 200
    assert measured.update_us > 0


def test_the_bars_are_for_the_largest_job_alone() -> None:
    assert failures([row(), row(workers=1000, cpu_s=99.0)]) == []
    assert failures([row(cpu_s=11.0), row(peak_mb=1500.0), row(workers=10, state="running")]) == [
        "bsp with 10 workers ended running",
        "10,000 workers x 100 iterations of bsp took 11.0 s, at most 10 s are asked for",
        "10,000 workers x 100 iterations of bsp took 1,500 MB, at most 1,000 MB are asked for",
    ]
