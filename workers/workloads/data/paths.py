"""Resolves paths of data files, and the error for invalid ones."""

from pathlib import Path


class DataError(ValueError):
    """Files are missing or have another format; the message has the file, what was found and what was expected."""


def resolve(path: str, data_dir: Path) -> Path:
    """Resolve ``path`` below ``data_dir``, following links.

    Raises:
        DataError: if it leads elsewhere, or is not a valid name.
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
