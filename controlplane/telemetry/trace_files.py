"""Reads files of the public cluster-usage traces; the simulator interprets their contents."""

import gzip
import zlib
from pathlib import Path

from controlplane.simulator.errors import TraceError
from controlplane.simulator.google_trace import Usage, read_task_usage


def read_trace(path: Path) -> list[Usage]:
    """The rows of a file of the table ``task_usage``, gzipped or plain.

    Raises:
        TraceError: if it cannot be read, or for its first broken row.
    """
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            return read_task_usage(lines, name=str(path))
    except (OSError, EOFError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise TraceError(f"{path}: cannot be read ({reason}), expected a file of the table task_usage") from None
