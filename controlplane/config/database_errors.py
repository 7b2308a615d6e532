"""The message to the user when the database cannot be used: one sentence with the cure, instead of a traceback."""

from django.conf import settings
from django.db import DatabaseError, OperationalError

from paceline.cli.places import MANAGE

NO_TABLES = f"The database has no tables yet: start the control plane once with: {MANAGE} up"


def sentence(error: DatabaseError) -> str | None:
    """The sentence; None for errors that are no fault of the installation."""
    found = (str(error).strip() or type(error).__name__).splitlines()[0]
    where = f"The database {settings.DATABASES['default']['NAME']}"
    if "no such table" in found or ("relation" in found and "does not exist" in found):
        return NO_TABLES
    if "readonly" in found or "read-only" in found:
        return f"{where} cannot be written ({found}): change its owner, or name another folder with PACELINE_DATA_DIR."
    if "not a database" in found or "malformed" in found:
        return f"{where} is damaged ({found}): move it away, or put a copy in its place."
    if isinstance(error, OperationalError):
        return f"{where} cannot be used ({found}): see that it is there and free, and check DATABASE_URL."
    return None
