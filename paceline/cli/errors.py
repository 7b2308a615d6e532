"""How the command reports errors, its own and the control plane's."""

from paceline.errors import PacelineError, Refused, Unreachable

OK, FAILED, REFUSED, NOT_REACHED, INTERRUPTED = 0, 1, 2, 3, 130
"""Exit codes: the job or request failed; the request was refused; no control plane answers; Ctrl-C."""


class Refusal(Exception):
    """An error of the command: a sentence, and the exit code."""

    def __init__(self, sentence: str, code: int = REFUSED) -> None:
        super().__init__(sentence)
        self.code = code


def refusal_of(error: PacelineError) -> Refusal:
    """Convert a client's error into an error of the command."""
    if isinstance(error, Unreachable):
        cure = "start one with `paceline up`, or name another with --url or PACELINE_URL"
        return Refusal(f"{error}; {cure}", NOT_REACHED)
    return Refusal("\n".join(error.lines()) if isinstance(error, Refused) else str(error))
