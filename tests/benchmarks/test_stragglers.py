import pytest

from benchmarks.offline.straggler_situations import SETTINGS, Setting, generate
from benchmarks.offline.stragglers import measure
from tests.policies.cluster import resolve


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_lasting_stragglers_are_found_and_little_else_is(setting: Setting) -> None:
    """A small set of another seed than the benchmark's; its bar is 0.95 each on 500 situations."""
    score = measure(resolve("stragglers", "evidence"), generate(setting, seed=7, count=60))
    assert (score.labels, score.flags) > (20, 20)
    assert score.recall >= 0.9
    assert score.precision >= 0.9
    assert score.waiting == 0
