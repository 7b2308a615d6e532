"""The position in the data, as a part of a library's checkpoints."""

import logging
from typing import Any

from paceline.errors import CannotAttach
from paceline.pacer import Pacer

log = logging.getLogger("paceline")


class Position:
    """Saved and loaded with the rest of a checkpoint.

    A library also loads checkpoints after training, for example the best one before an evaluation. The position is then
    unchanged, and a sentence is logged.
    """

    def __init__(self, pacer: Pacer) -> None:
        self._pacer = pacer

    def state_dict(self) -> dict[str, Any]:
        """The job's position after the last ``step``."""
        return self._pacer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from the saved position, unless training has begun."""
        try:
            self._pacer.load_state_dict(state)
        except CannotAttach:
            log.log(
                logging.WARNING if self._pacer.rank == 0 else logging.INFO,
                "paceline: a checkpoint of iteration %s was loaded after the first batch: the position in the data"
                " stays at iteration %d. To continue from the checkpoint, load it before the first batch",
                state.get("iteration"),
                self._pacer.iteration,
            )
