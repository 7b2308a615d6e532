"""Servers find out whether they keep checkpoints in the same folder."""

import queue
from pathlib import Path

import pytest

from tests.workers.driver import DEADLINE_S
from workers.checkpoints import common_folder
from workers.checkpoints.common_folder import CommonFolder


def test_server_whose_folder_is_another_reports_which_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common_folder, "WAIT_S", 0.1)
    said: queue.SimpleQueue[str] = queue.SimpleQueue()
    mine = CommonFolder(tmp_path / "a", "s0.0.1", said.put)
    CommonFolder(tmp_path / "b", "s1.0.1", said.put)
    mine.compare(["s0.0.1", "s1.0.1"])
    assert said.get(timeout=DEADLINE_S) == (
        f"its folder for checkpoints, {tmp_path / 'a'}, is not that of s1.0.1: no mark of theirs is there. "
        "Give all agents that run servers the same shared folder with --checkpoint-dir"
    )


def test_servers_of_one_folder_find_each_other(tmp_path: Path) -> None:
    said: list[str] = []
    first = CommonFolder(tmp_path, "s0.0.1", said.append)
    CommonFolder(tmp_path, "s1.0.1", said.append)
    first._look_for({"s1.0.1"})
    assert said == []


def test_a_folder_that_cannot_be_written_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said: list[str] = []
    folder = CommonFolder(tmp_path / "file", "s0.0.1", said.append)
    folder.compare(["s0.0.1"])
    folder.compare(["s0.0.1"])
    assert said == [f"checkpoints cannot be written to {tmp_path / 'file'}: Not a directory"]
