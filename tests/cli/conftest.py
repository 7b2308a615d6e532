"""The command against a real web server."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from knox.models import AuthToken

from controlplane.jobs.roles import Role
from paceline.cli.main import main
from paceline.cli.slurm import watch
from tests.cli.slurm_commands import RUNS, SBATCH, SINFO, program

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def paceline(capfd: pytest.CaptureFixture[str]) -> Command:
    """Runs the command: exit code, output, and what it says beside it."""

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        out, err = capfd.readouterr()
        return int(caught.value.code or 0), out, err

    return run


@pytest.fixture
def operator(live_server: Any, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a control plane whose operator's token is in the environment."""
    return _signed_in(Role.OPERATOR, live_server, monkeypatch)


@pytest.fixture
def admin(live_server: Any, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Likewise, with an admin's."""
    return _signed_in(Role.ADMIN, live_server, monkeypatch)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Slurm's commands, each a script that notes how it was called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    for name, does in {
        "sinfo": SINFO,
        "sbatch": SBATCH,
        "scancel": ":",
        "squeue": ":",
        "scontrol": f"echo '{RUNS}'",
    }.items():
        program(folder, name, does)
    monkeypatch.setattr(watch, "start", lambda *_: None)
    return folder


def _signed_in(role: Role, live_server: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    user = User.objects.create_user("ann")
    user.groups.add(Group.objects.get_or_create(name=role)[0])
    monkeypatch.setenv("PACELINE_URL", live_server.url)
    monkeypatch.setenv("PACELINE_API_TOKEN", AuthToken.objects.create(user=user)[1])
    return str(live_server.url)
