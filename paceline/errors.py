"""Errors of a control plane, or of a script that attaches to one, in sentences."""

from typing import Any

import msgspec


class PacelineError(Exception):
    """A failed request to a control plane: by the control plane or on the way to it."""


class Unreachable(PacelineError):
    """No control plane answers at that address."""


class NeedsLibrary(PacelineError):
    """The request needs a library that is not installed here."""


class CannotAttach(PacelineError, ValueError):
    """Something in a script that cannot be managed, and what to do instead; raised before training begins."""


class Stopped(Exception):
    """The job was stopped: raised by ``step`` at the end of an iteration, at the same one on each rank.

    With ``will_restart`` the launcher is about to stop the ranks and restart them later: a script that saves its
    state now loses nothing.
    """

    def __init__(self, sentence: str = "", *, will_restart: bool = False) -> None:
        super().__init__(sentence)
        self.will_restart = will_restart

    @property
    def goes_on(self) -> bool:
        """The earlier name of ``will_restart``."""
        return self.will_restart


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One field at fault: where, what was found, what is expected."""

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
    """The control plane refused. The message is its explanation; ``problem`` is its whole document."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(problem.detail or problem.title or "refused without a reason")

    @property
    def status(self) -> int:
        """The HTTP status: 400 malformed, 401 and 403 token refused, 404 not found, 409 not possible in this state."""
        return self.problem.status

    @property
    def subject(self) -> str:
        """The first field at fault; without one, what kind of refusal it is."""
        return self._fault.field or self.problem.title

    @property
    def found(self) -> Any:
        """The value of that field; None where no field is at fault."""
        return self._fault.found

    @property
    def expected(self) -> str:
        """Accepted values of the field; empty if no field is at fault."""
        return self._fault.expected

    @property
    def cure(self) -> str:
        """The cure: the expected values of the fields at fault, otherwise the API's own sentence."""
        return "; ".join(f"{_named(fault)}: {fault.expected}" for fault in self.problem.errors) or str(self)

    def lines(self) -> list[str]:
        """One sentence per field at fault; the API's sentence where there is none."""
        faults = self.problem.errors
        return [f"{_named(fault)}: found {fault.found!r}, expected {fault.expected}" for fault in faults] or [str(self)]

    @property
    def _fault(self) -> Fault:
        return self.problem.errors[0] if self.problem.errors else Fault()


def _named(fault: Fault) -> str:
    return fault.field or "spec"
