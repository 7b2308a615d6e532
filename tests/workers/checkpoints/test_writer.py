"""What is written of a version, and what is not."""

import threading
from pathlib import Path

import pytest
import torch

from tests.workers.driver import DEADLINE_S
from workers.checkpoints.files import VALUES
from workers.checkpoints.writer import Copy, Saved, Writer


def written(folder: Path, *blocks: list[float]) -> list[Saved]:
    """What is said of blocks of iteration 20, one after another."""
    said: list[Saved] = []
    writer = Writer(folder, keep=1, manifest=lambda whole: pytest.fail("no manifest is asked for"), say=said.append)
    for at, values in enumerate(blocks):
        tensors = {VALUES: torch.tensor(values)}
        writer.take(Copy(iteration=20, start=2 * at, stop=2 * at + 2, steps=20, tensors=tensors))
    writer.close()
    return said


def test_blocks_are_written_and_reported(tmp_path: Path) -> None:
    said = written(tmp_path, [1.0, 2.0], [3.0, 4.0])
    assert [piece.start for each in said for piece in each.pieces] == [0, 2]
    assert not any(each.is_spoilt for each in said)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_parameters_that_are_no_numbers_are_no_checkpoint(tmp_path: Path, value: float) -> None:
    (said,) = written(tmp_path, [1.0, value])
    assert (said.is_spoilt, said.pieces) == (True, [])
    assert said.failure == "the parameters that iteration 20 begins with are not finite numbers"
    assert said.message(1).is_spoilt
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (said,) = written(tmp_path / "file", [1.0, 2.0])
    assert (said.is_spoilt, said.failure) == (
        False,
        f"the checkpoint of iteration 20 cannot be written to {tmp_path / 'file'}: Not a directory",
    )


def test_queued_writes_are_completed_in_order_on_close(tmp_path: Path) -> None:
    said: list[int] = []
    all_wait = threading.Event()

    def say(saved: Saved) -> None:
        assert all_wait.wait(DEADLINE_S)
        said.append(saved.iteration)

    writer = Writer(tmp_path, keep=1, manifest=lambda whole: pytest.fail("no manifest is asked for"), say=say)
    for iteration in (20, 40, 60, 80):
        tensors = {VALUES: torch.ones(2)}
        writer.take(Copy(iteration=iteration, start=0, stop=2, steps=iteration, tensors=tensors))
    closing = threading.Thread(target=writer.close)
    closing.start()
    all_wait.set()
    closing.join(DEADLINE_S)
    assert said == [20, 40, 60, 80]
