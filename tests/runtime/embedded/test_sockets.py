"""Folders for Unix sockets."""

import shutil
import socket
import tempfile
from pathlib import Path

import pytest

from controlplane.runtime.embedded import sockets
from controlplane.runtime.embedded.errors import CannotStart

NAME = "pymp-12345678/listener-12345678"


@pytest.mark.parametrize("length", [20, 90])
def test_a_folder_has_space_for_a_socket_however_long_the_temporary_folder_is(
    length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * length)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long if length > 20 else "/tmp"))
    folder = sockets.socket_folder(NAME)
    try:
        (folder / NAME).parent.mkdir()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / NAME))
        assert folder.stat().st_mode & 0o777 == 0o700
        assert [*long.iterdir()] == []
    finally:
        shutil.rmtree(folder)


def test_no_folder_with_room_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sockets, "COMMON", ())
    with pytest.raises(CannotStart, match=r"^No folder for Unix sockets: .* set TMPDIR to another folder\.$"):
        sockets.socket_folder("x" * 90)
