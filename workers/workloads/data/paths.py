"""Where files of data may lie, and what can be wrong with them."""

from pathlib import Path


class DataError(ValueError):
    """Files that are missing or not what they are called; the text names file, what was found and what was expected."""


def resolve(path: str, data_dir: Path) -> Path:
    """``path`` below ``data_dir``, links followed.

    Raises:
        DataError: if it leads elsewhere, or nothing can have that name.
    """
    root = data_dir.resolve()
    try:
        found = (root / path).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"workload.data {path!r}: expected the name of a file or folder ({reason})") from None
    if not found.is_relative_to(root):
        raise DataError(f"workload.data {path!r} leads out of the data folder of this machine")
    return found
