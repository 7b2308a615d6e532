"""The actor of operations outside requests."""

from getpass import getuser


def command_line() -> str:
    """The operating system's user: access to ``manage.py`` implies access to the database."""
    try:
        return f"{getuser()} (command line)"
    except (KeyError, OSError):  # a container's user without a name
        return "unknown user (command line)"
