"""Checkpoints on disk."""

from pathlib import Path

import numpy as np
import pytest
import torch

from controlplane.protocol.checkpoints import FoundCheckpoint
from workers.checkpoints import files

ELEMENTS = 10


def tensors(start: int, stop: int, *, first: float = 0.0) -> dict[str, torch.Tensor]:
    values = torch.arange(start, stop, dtype=torch.float32) + first
    return {"values": values, "state.momentum_buffer": values * 2, "state.steps": torch.tensor(7)}


def write(root: Path, iteration: int, *, cuts: tuple[tuple[int, int], ...] = ((0, 4), (4, 10))) -> Path:
    folder = files.folder_of(root, iteration)
    pieces = [files.write_piece(folder, start, stop, 7, tensors(start, stop, first=iteration)) for start, stop in cuts]
    files.write_manifest(
        folder,
        files.Manifest(
            job=3,
            name="digits",
            iteration=iteration,
            position=iteration * 64,
            seed=7,
            workload={"name": "softmax-regression"},
            optimizer={"name": "sgd"},
            elements=ELEMENTS,
            pieces=pieces,
        ),
    )
    return folder


def test_a_restored_block_is_unchanged(tmp_path: Path) -> None:
    folder = write(tmp_path, 40)
    found, steps = files.read_block(folder, 4, 10)
    assert steps == 7
    assert {name: tensor.tolist() for name, tensor in found.items()} == {
        name: tensor.tolist() for name, tensor in tensors(4, 10, first=40).items()
    }


@pytest.mark.parametrize("span", [(0, 10), (2, 6), (5, 6)])
def test_parameters_can_be_read_with_other_block_limits(tmp_path: Path, span: tuple[int, int]) -> None:
    found, _ = files.read_block(write(tmp_path, 40), *span)
    assert found["values"].tolist() == [40.0 + each for each in range(*span)]
    assert found["state.momentum_buffer"].tolist() == [2 * (40.0 + each) for each in range(*span)]
    assert int(found["state.steps"]) == 7


def test_nothing_in_a_file_can_run(tmp_path: Path) -> None:
    data = next(write(tmp_path, 40).glob("block-*.bin")).read_bytes()
    assert data.startswith(b'[{"name":"values","type":"float32","shape":[4]}')
    assert np.frombuffer(data, dtype=np.float32, count=4, offset=data.index(b"\n") + 1).tolist() == [40, 41, 42, 43]


def test_the_newest_whole_one_comes_first(tmp_path: Path) -> None:
    write(tmp_path, 40)
    write(tmp_path, 60)
    assert files.find(tmp_path, ELEMENTS) == (
        [FoundCheckpoint(iteration=60, position=3840), FoundCheckpoint(iteration=40, position=2560)],
        [],
    )


def test_a_half_written_one_is_skipped_with_the_reason(tmp_path: Path) -> None:
    write(tmp_path, 40)
    (write(tmp_path, 60) / files.MANIFEST).unlink()
    found, (why,) = files.find(tmp_path, ELEMENTS)
    assert [each.iteration for each in found] == [40]
    assert why.endswith("has no manifest.json: it was not finished")


def test_a_manifest_that_is_not_text_is_skipped_with_the_reason(tmp_path: Path) -> None:
    write(tmp_path, 40)
    (write(tmp_path, 60) / files.MANIFEST).write_bytes(b'{"name": "\xff"}')
    found, (why,) = files.find(tmp_path, ELEMENTS)
    assert [each.iteration for each in found] == [40]
    assert "manifest.json cannot be read" in why


def test_an_altered_one_is_skipped_and_its_file_named(tmp_path: Path) -> None:
    write(tmp_path, 40)
    broken = next(write(tmp_path, 60).glob("block-*4.bin"))
    data = bytearray(broken.read_bytes())
    data[-1] ^= 1
    broken.write_bytes(data)
    found, (why,) = files.find(tmp_path, ELEMENTS)
    assert [each.iteration for each in found] == [40]
    assert str(broken) in why
    assert "expected" in why


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    missing = next(write(tmp_path, 40).glob("block-*0.bin"))
    missing.unlink()
    with pytest.raises(files.CheckpointError, match=r"block-0+\.bin cannot be read: No such file"):
        files.check(missing.parent, ELEMENTS)


def test_that_of_another_model_is_skipped(tmp_path: Path) -> None:
    write(tmp_path, 40)
    assert files.find(tmp_path, 650)[1] == [f"{tmp_path}/000000040 has 10 parameters, this job has 650"]


def test_parameters_that_no_file_holds_are_named(tmp_path: Path) -> None:
    with pytest.raises(files.CheckpointError, match="has no values of the parameters 4 to 6"):
        files.check(write(tmp_path, 40, cuts=((0, 4), (6, 10))), ELEMENTS)


def test_no_folder_is_no_checkpoint(tmp_path: Path) -> None:
    assert files.find(tmp_path / "gone", ELEMENTS) == ([], [f"{tmp_path}/gone holds no checkpoint"])


def test_only_the_newest_are_kept_and_what_was_begun_before_them_goes(tmp_path: Path) -> None:
    for iteration in (20, 40, 60):
        write(tmp_path, iteration)
    (files.folder_of(tmp_path, 20) / files.MANIFEST).unlink()
    files.folder_of(tmp_path, 80).mkdir()  # is being written
    files.keep_newest(tmp_path, 2)
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["000000040", "000000060", "000000080"]
    files.keep_newest(tmp_path, 1)
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["000000060", "000000080"]


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = files.folder_of(tmp_path, 40)
    with pytest.raises(ValueError, match="values has type"):
        files.write_piece(folder, 0, 4, 7, {"values": torch.zeros(4, dtype=torch.float16)})
    assert list(folder.iterdir()) == []
