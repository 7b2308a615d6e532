"""What the attacks of ``bench hostile`` get and return."""

from collections import Counter

import msgspec

from controlplane.protocol.messages import ProcessName


class AttackContext(msgspec.Struct, kw_only=True, frozen=True):
    """What is attacked, by whom, and for how long."""

    url: str
    credential: str
    """Of the attacker's own machine."""
    victims: list[ProcessName]
    """Processes of others; an attacker would have to guess their names."""
    data_ports: list[int]
    """Where parameter servers of others listen."""
    number: int
    """Of the next message of the attacker's machine."""
    key: str = ""
    """What the attacker's own worker stores a model with, once it has one."""
    own_job: int
    seconds: float

    @property
    def sockets(self) -> str:
        """The address of websockets."""
        return self.url.replace("http://", "ws://")


class AttackResult(msgspec.Struct, kw_only=True):
    """How often each answer came, and what the attacker knows now."""

    answers: Counter[str] = msgspec.field(default_factory=Counter)
    number: int
    key: str = ""
