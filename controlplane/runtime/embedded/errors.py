"""Errors for the user at the terminal, when something cannot be started."""


class CannotStart(Exception):
    """One sentence (or a few lines) for a person: what was found, what was expected, and the cure."""


class Interrupted(Exception):
    """Somebody asked for the end (Ctrl-C, SIGTERM, SIGHUP) while something was being waited for."""
