"""What a measurement is told: where the control plane is that it measures, and what is asked for."""

from typing import Self

import msgspec


class Options(msgspec.Struct, kw_only=True, frozen=True):
    """What can be chosen on the command line."""

    seconds: float
    workers: int = 100
    jobs: int = 0
    """How many; 0: as the bench has it."""
    beyond: bool = False
    slope: bool = False
    tab_s: float = 0.0
    """How long a page is watched."""


class Place(msgspec.Struct, kw_only=True, frozen=True):
    """A running control plane with an echo server beside it; travels on a command line."""

    base: str
    """Of its websockets."""
    echo: str
    processes: dict[str, int]
    """Process ids of its services."""
    echo_process: int = 0
    options: Options

    def encode(self) -> str:
        """As text."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, text: str) -> Self:
        """From what ``encode`` gave."""
        return msgspec.json.decode(text, type=cls)
