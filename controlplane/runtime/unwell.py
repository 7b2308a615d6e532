"""What went wrong with single jobs, for the operator: entries that were set aside, and turns in loops that failed."""

from django.db import DatabaseError

from controlplane.runtime import dead_letters
from controlplane.runtime.apart import failed_turns
from controlplane.runtime.redis import Client


def unwell(client: Client) -> str:
    """Which jobs, what of them, and the cure; empty while all is well."""
    try:
        letters = dead_letters.sentence()
    except DatabaseError:  # told by whoever looks at the database itself
        letters = ""
    return " ".join(said for said in (letters, failed_turns(client)) if said)
