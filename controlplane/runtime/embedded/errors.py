"""Errors for the user at the terminal, when something cannot be started."""


class CannotStart(Exception):
    """One sentence (or a few lines) for a person: what was found, what was expected, and the cure."""


class Interrupted(Exception):
    """The user ended the program (Ctrl-C, SIGTERM, SIGHUP) during a wait."""
