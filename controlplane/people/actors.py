"""Who acts, where no request says so."""

from getpass import getuser


def command_line() -> str:
    """The user of the machine: access to ``manage.py`` implies access to the database."""
    try:
        return f"{getuser()} (command line)"
    except (KeyError, OSError):  # a container's user without a name
        return "unknown user (command line)"
