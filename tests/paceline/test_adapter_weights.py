"""The same gradient by each library: uneven shares, accumulation, clipping and AdamW, beside one process."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.paceline.test_adapters import ADAPTERS, ROOT, RUNS_S, environment, with_libraries

pytestmark = with_libraries


@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", ["accelerate", "lightning", "trainer", "trainer-items"])
def test_a_library_on_uneven_shares_ends_with_the_weights_of_one_process(way: str) -> None:
    words = [str(ADAPTERS / "python"), str(Path(__file__).with_name("adapter_weights.py")), way]
    done = subprocess.run(
        words, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=RUNS_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    apart, reports = json.loads(done.stdout.splitlines()[-1])
    assert apart < 1e-5
    assert reports == [[[0, 20], [1, 18], [2, 28], [3, 24]], [[0, 12], [1, 10], [2, 4], [3, 4]]]
