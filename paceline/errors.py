"""Exceptions of attached scripts and of the client."""

from typing import Any

import msgspec


class PacelineError(Exception):
    """A failed request to a control plane, refused or not delivered."""


class Unreachable(PacelineError):
    """No control plane answers at that address."""


class NeedsLibrary(PacelineError):
    """The request needs a library that is not installed."""


class CannotAttach(PacelineError, ValueError):
    """A script cannot be attached, with the cure; raised before a pass over the data begins."""


class Stopped(Exception):
    """The job was stopped: raised by ``step`` at the end of the same iteration on each rank.

    With ``will_restart`` the launcher will stop the ranks and restart them later: a script that saves its state now
    loses nothing.
    """

    def __init__(self, sentence: str = "", *, will_restart: bool = False) -> None:
        super().__init__(sentence)
        self.will_restart = will_restart

    @property
    def goes_on(self) -> bool:
        """The earlier name of ``will_restart``."""
        return self.will_restart


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One invalid field: its location, what was found, what is expected."""

    field: str = ""
    found: Any = None
    expected: str = ""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """The API's problem document of a refusal (RFC 9457, problem+json)."""

    type: str = "about:blank"
    title: str = ""
    status: int = 0
    detail: str = ""
    trace_id: str = ""
    """Identifies the request in the control plane's log."""
    errors: list[Fault] = []


class Refused(PacelineError):
    """The control plane refused the request. The message is its explanation; ``problem`` is the complete document."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(problem.detail or problem.title or "refused without a reason")

    @property
    def status(self) -> int:
        """The HTTP status: 400 malformed, 401 and 403 token refused, 404 not found, 409 not possible in this state."""
        return self.problem.status

    @property
    def subject(self) -> str:
        """The first invalid field; without one, the kind of refusal."""
        return self._fault.field or self.problem.title

    @property
    def found(self) -> Any:
        """The value of that field; None if no field is invalid."""
        return self._fault.found

    @property
    def expected(self) -> str:
        """Accepted values of the field; empty if no field is invalid."""
        return self._fault.expected

    @property
    def cure(self) -> str:
        """The cure: the expected values of the invalid fields, otherwise the API's own sentence."""
        return "; ".join(f"{_named(fault)}: {fault.expected}" for fault in self.problem.errors) or str(self)

    def lines(self) -> list[str]:
        """One sentence per invalid field; without one, the API's sentence."""
        faults = self.problem.errors
        return [f"{_named(fault)}: found {fault.found!r}, expected {fault.expected}" for fault in faults] or [str(self)]

    @property
    def _fault(self) -> Fault:
        return self.problem.errors[0] if self.problem.errors else Fault()


def _named(fault: Fault) -> str:
    return fault.field or "spec"
