"""``python -m tests.workers.agent.daemon URL STATE_DIR``: a real agent whose processes behave as ``entries`` says.

With ``TEST_DIES_ON_KEEPING`` it dies as soon as it has kept a new credential, before it can say so.
"""

import os
import signal
import sys
from pathlib import Path
from random import Random

from controlplane.protocol.messages import SlotOffer
from workers import logs
from workers.addresses import control_plane
from workers.agent import Agent, Offer
from workers.backoff import Backoff
from workers.setup import Setup
from workers.spawner.client import Kit
from workers.state import AgentState, Credential


class Mortal(AgentState):
    """Of an agent that dies as said above."""

    def replace_credential(self, credential: Credential) -> None:
        super().replace_credential(credential)
        os.kill(os.getpid(), signal.SIGKILL)


def main(url: str, root: Path) -> int:
    """Serve; 0 when asked to end, 1 when the control plane ended it."""
    logs.configure()
    plane = control_plane(url)
    kind = Mortal if "TEST_DIES_ON_KEEPING" in os.environ else AgentState
    state = kind(root, url=plane.url, name="box")
    state.open()
    credential = state.read_credential() or Credential(agent=3, name="box", url=plane.url, secret="agent-secret")
    setup = Setup(url=url)
    offer = Offer(name="box", slots=[SlotOffer()] * 2, server_slots=1, labels={"gpu": "none"}, setup=setup)
    kit = Kit(setup=setup, entry="tests.workers.agent.entries:act", modules=())
    backoff = Backoff(Random(1), first_s=0.01, most_s=0.05)
    agent = Agent(plane, credential, offer, state, kit=kit, backoff=backoff, grace_s=0.3)
    return 0 if agent.run() is None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
