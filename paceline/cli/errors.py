"""How the command says no."""

OK, FAILED, REFUSED, NOT_REACHED, INTERRUPTED = 0, 1, 2, 3, 130
"""Exit codes: the job or request failed; what was asked for was refused; no control plane answers; Ctrl-C."""


class Refusal(Exception):
    """The command cannot do it: a sentence, and the exit code."""

    def __init__(self, sentence: str, code: int = REFUSED) -> None:
        super().__init__(sentence)
        self.code = code
