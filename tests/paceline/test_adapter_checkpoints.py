"""Checkpoints of libraries that are loaded during training and after it."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.paceline.test_adapters import ADAPTERS, ROOT, RUNS_S, environment, with_libraries

pytestmark = with_libraries


def found(way: str) -> Any:
    words = [str(ADAPTERS / "python"), str(Path(__file__).with_name("adapter_checkpoints.py")), way]
    done = subprocess.run(
        words, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=RUNS_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("library", ["accelerate", "lightning"])
def test_a_checkpoint_that_is_loaded_after_training_leaves_the_position_as_it_is(library: str) -> None:
    apart, iteration, said = found(library)
    assert apart == 0.0
    assert iteration == 2
    assert len(said) == 1
    assert "iteration 1 was loaded after the first batch: the position in the data stays at iteration 2" in said[0]


def test_the_trainer_resumes_in_the_middle_of_a_pass_with_the_samples_and_weights_of_a_run_in_one_piece() -> None:
    apart, epochs, expected, taken, said = found("trainer")
    assert apart == 0.0
    assert abs(epochs) < 1e-9
    assert taken == expected
    assert sorted(expected) == [*range(20)]
    assert len(said) == 1
    assert "step 7 was saved without Paceline" in said[0]
