"""``python -m workers health``: what a container engine asks."""

import os
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from workers.cli import app
from workers.state import ALIVE, CONNECTED, AgentState

SIGNS = pytest.mark.parametrize(
    ("options", "sign", "missing", "what"),
    [
        ((), CONNECTED, "has ever been connected", "heartbeat"),
        (("--live",), ALIVE, "has ever run", "turn of the loop"),
    ],
)


def health(root: Path, *options: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["health", *options, "--state-dir", str(root)])
    return result.exit_code, result.output.strip()


def agent_state(root: Path) -> AgentState:
    state = AgentState(root, url="http://127.0.0.1:8000", name="fast")
    state.open()
    return state


@SIGNS
def test_a_machine_that_never_joined_is_not_well(
    tmp_path: Path, options: tuple[str, ...], sign: str, missing: str, what: str
) -> None:
    assert health(tmp_path, *options) == (1, f"error: no agent {missing} that keeps its state in {tmp_path}")


@SIGNS
def test_an_agent_with_a_recent_sign_is_well(
    tmp_path: Path, options: tuple[str, ...], sign: str, missing: str, what: str
) -> None:
    agent_state(tmp_path).mark(sign)
    assert health(tmp_path, *options) == (0, "well")


@SIGNS
def test_an_agent_without_recent_signs_is_not_well(
    tmp_path: Path, options: tuple[str, ...], sign: str, missing: str, what: str
) -> None:
    state = agent_state(tmp_path)
    state.mark(sign)
    os.utime(state.folder / sign, times=(0, time.time() - 60))
    code, said = health(tmp_path, *options)
    assert code == 1
    assert said == f"error: the last {what} of an agent that keeps its state in {tmp_path} is 60 s old"
