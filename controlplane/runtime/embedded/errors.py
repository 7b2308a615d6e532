"""Errors for the user at the terminal, when something cannot be started."""


class CannotStart(Exception):
    """An error for the operator: what was found, what was expected, and the cure."""


class Interrupted(Exception):
    """The user ended the program (Ctrl-C, SIGTERM, SIGHUP) during a wait."""
