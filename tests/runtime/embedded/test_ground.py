"""What must hold before anything is started."""

import os
import socket
from pathlib import Path

import pytest

from controlplane.runtime.embedded.control_plane import ControlPlane
from controlplane.runtime.embedded.errors import CannotStart
from controlplane.runtime.embedded.ground import check_port, free_port, own_folder


def test_a_free_port_passes() -> None:
    check_port("127.0.0.1", free_port())


def test_a_port_that_is_taken_is_named_with_the_cure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(CannotStart) as caught:
            check_port("127.0.0.1", port)
    assert str(caught.value) == (
        f"Port {port} on 127.0.0.1 cannot be used (Address already in use): "
        "stop the program that listens on it, or choose another port with --port."
    )


def test_a_second_control_plane_on_one_folder_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    with own_folder(tmp_path), pytest.raises(CannotStart) as caught, own_folder(tmp_path):
        pass
    assert f"The data folder {tmp_path} is in use by a running control plane (process {os.getpid()})" in str(
        caught.value
    )


def test_a_folder_is_free_again_once_its_owner_is_done(tmp_path: Path) -> None:
    with own_folder(tmp_path):
        pass
    with own_folder(tmp_path) as folder:
        assert folder == tmp_path


def test_a_folder_that_cannot_be_made_is_named_with_the_cure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CannotStart) as caught, own_folder(tmp_path / "file" / "data"):
        pass
    assert str(caught.value) == (
        f"The data folder {tmp_path}/file/data cannot be written (Not a directory): "
        "set PACELINE_DATA_DIR to a writable folder."
    )


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::1", "http://[::1]:8000"),
        ("::", "http://[::1]:8000"),
        ("paceline.example.org", "http://paceline.example.org:8000"),
    ],
)
def test_the_address_is_one_that_a_browser_here_can_open(tmp_path: Path, host: str, url: str) -> None:
    assert ControlPlane(folder=tmp_path, host=host).url == url
