"""Errors of a simulation: each names the subject, the found value, and the cure."""


class SimulationError(ValueError):
    """A simulation that cannot begin or continue."""


class ScenarioError(SimulationError):
    """An impossible scenario: the field, its value, and what was expected."""

    def __init__(self, field: str, found: object, cure: str) -> None:
        self.field, self.found, self.cure = field, found, cure
        super().__init__(f"{field}: found {found!r}, expected {cure}")


class SeriesEnded(SimulationError):
    """A recorded or generated series is shorter than the job."""


class TraceError(SimulationError):
    """A trace file with a broken row: which one, and what is wrong with it."""


class Stuck(SimulationError):
    """Deadlock: no event is due and the job is not over; says which worker waits for which."""
