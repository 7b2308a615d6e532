"""Who acts, where no request says so."""

from getpass import getuser


def command_line() -> str:
    """The user of the machine: whoever can run a command of ``manage.py`` holds the database."""
    try:
        return f"{getuser()} (command line)"
    except (KeyError, OSError):  # a container's user without a name
        return "somebody (command line)"
