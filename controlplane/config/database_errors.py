"""Explains database errors to the user: one sentence with the remedy, instead of a traceback."""

from django.conf import settings
from django.db import DatabaseError, OperationalError

from paceline.cli.places import MANAGE

NO_TABLES = f"The database has no tables yet: start the control plane once with: {MANAGE} up"


def sentence(error: DatabaseError) -> str | None:
    """The sentence; None for errors that are not caused by the installation."""
    found = (str(error).strip() or type(error).__name__).splitlines()[0]
    where = f"The database {settings.DATABASES['default']['NAME']}"
    if "no such table" in found or ("relation" in found and "does not exist" in found):
        return NO_TABLES
    if "readonly" in found or "read-only" in found:
        return f"{where} cannot be written ({found}): change its owner, or set PACELINE_DATA_DIR to another folder."
    if "not a database" in found or "malformed" in found:
        return f"{where} is damaged ({found}): move it away, or restore a backup."
    if isinstance(error, OperationalError):
        return f"{where} cannot be used ({found}): check that it is running and not locked, and check DATABASE_URL."
    return None
