"""``python -m workers health``: what a container engine asks."""

import os
import time
from pathlib import Path

from typer.testing import CliRunner

from workers.cli import app
from workers.state import AgentState


def health(root: Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["health", "--state-dir", str(root)])
    return result.exit_code, result.output.strip()


def agent_state(root: Path) -> AgentState:
    state = AgentState(root, url="http://127.0.0.1:8000", name="fast")
    state.open()
    return state


def test_a_machine_that_never_joined_is_not_well(tmp_path: Path) -> None:
    assert health(tmp_path) == (1, f"error: no agent has ever been connected that keeps its state in {tmp_path}")


def test_an_agent_that_just_sent_a_heartbeat_is_well(tmp_path: Path) -> None:
    agent_state(tmp_path).mark_alive()
    assert health(tmp_path) == (0, "well")


def test_an_agent_without_heartbeats_is_unhealthy(tmp_path: Path) -> None:
    state = agent_state(tmp_path)
    state.mark_alive()
    os.utime(state.folder / "alive", times=(0, time.time() - 60))
    code, said = health(tmp_path)
    assert code == 1
    assert said == f"error: the last heartbeat of an agent that keeps its state in {tmp_path} is 60 s old"
