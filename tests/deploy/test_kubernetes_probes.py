"""The probes of agents in deploy/kubernetes: a control plane that is away ends no agent."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.kubernetes import pods, probe_command
from tests.support.waiting import eventually
from tests.workers.agent.peer import ControlPeer
from workers.state import ALIVE, CONNECTED

pytestmark = pytest.mark.integration


class Pod:
    """A real agent, and the commands with which the kubelet would probe it."""

    def __init__(self, url: str, state: Path) -> None:
        self._state = state
        command = [sys.executable, "-m", "tests.workers.agent.daemon", url, str(state)]
        self.process = subprocess.Popen(command, env=os.environ | {"TEST_FOLDER": str(state.parent)})

    def passes(self, probe: str) -> bool:
        """Run a probe of the manifest once."""
        (pod,) = pods("agents").values()
        (container,) = pod["containers"]
        words = {"python": sys.executable, "/data": str(self._state)}
        command = [words.get(word, word) for word in probe_command(container, container[probe])]
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0

    def outdate(self) -> None:
        """Make the agent's files as old as after an outage of an hour."""
        for sign in (ALIVE, CONNECTED):
            (file,) = self._state.glob(f"agent-*/{sign}")
            os.utime(file, (0.0, file.stat().st_mtime - 3600.0))


@pytest.fixture
def peer() -> Iterator[ControlPeer]:
    with ControlPeer() as peer:
        yield peer


@pytest.fixture
def pod(peer: ControlPeer, tmp_path: Path) -> Iterator[Pod]:
    pod = Pod(peer.url, tmp_path / "state")
    try:
        yield pod
    finally:
        pod.process.kill()
        pod.process.wait()


def test_an_agent_whose_control_plane_is_away_stays_live_and_is_not_ready(peer: ControlPeer, pod: Pod) -> None:
    peer.await_session("/ws/agent").await_beats(1)
    eventually(lambda: pod.passes("startupProbe"), what="the start of the agent")
    assert pod.passes("readinessProbe")
    peer.stop()
    pod.outdate()
    eventually(lambda: pod.passes("livenessProbe"), what="a live agent without its control plane")
    assert pod.passes("startupProbe")
    assert not pod.passes("readinessProbe")
    assert pod.process.poll() is None


def test_an_agent_that_hangs_is_not_live(peer: ControlPeer, pod: Pod) -> None:
    peer.await_session("/ws/agent").await_beats(1)
    eventually(lambda: pod.passes("livenessProbe"), what="a live agent")
    pod.process.send_signal(signal.SIGSTOP)
    eventually(lambda: stopped(pod.process.pid), what="the stop of the agent")
    pod.outdate()
    assert not pod.passes("livenessProbe")


def stopped(pid: int) -> bool:
    """Whether SIGSTOP has taken effect."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
