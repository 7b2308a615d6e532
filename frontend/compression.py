"""Compresses static files once and caches the results; containers compress theirs when they are built.

``up`` and ``demo`` serve files from the source tree, where nothing may be written. The compressed files are in the
data folder; their names are hashes of the contents.
"""

import contextlib
import gzip
import logging
import os
import time
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from servestatic.middleware import ServeStaticMiddleware
from servestatic.responders import StaticFile

logger = logging.getLogger(__name__)

FOLDER: Final = "compressed"
"""Within the data folder."""

UNUSED_S: Final = 30 * 86_400.0
"""A file that no start has used for this long is removed: its contents have changed since. The time is long because a
process of an earlier release may still serve it."""

ENDINGS: Final = frozenset({".js", ".css", ".svg"})
LEAST_BYTES: Final = 1_000
"""A smaller file fits into one packet without compression."""

LEVEL: Final = 6
"""The highest level saves 1 % more, for three times the time."""


class CompressedStatic(ServeStaticMiddleware):
    """Serves static files compressed, including those that finders serve from the source tree."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        remove_unused(Path(settings.DATA_DIR) / FOLDER)

    def get_static_file(self, path: str, url: str, stat_cache: dict[str, os.stat_result] | None = None) -> StaticFile:
        """The file with a compressed variant, if it has none beside it."""
        file: StaticFile = super().get_static_file(path, url, stat_cache=stat_cache)
        if not self.use_finders or self.autorefresh or len(file.alternatives) > 1:
            return file
        kept = compressed(Path(path), Path(settings.DATA_DIR) / FOLDER)
        if kept is None:
            return file
        # Name, type and date are those of the original file: the same content is served, only smaller.
        _, _, own = file.alternatives[0]
        headers = [(name, value) for name, value in own if value is not None and name != "Content-Length"]
        return StaticFile(path, headers, encodings={"gzip": str(kept)})


def compressed(path: Path, folder: Path) -> Path | None:
    """The compressed file in ``folder``, created if missing; None if compression does not help or the write fails."""
    if path.suffix not in ENDINGS or path.stat().st_size < LEAST_BYTES:
        return None
    content = path.read_bytes()
    kept = folder / f"{sha256(content).hexdigest()[:32]}{path.suffix}.gz"
    if kept.exists():
        with contextlib.suppress(OSError):  # owned by another user, for example: it is still served
            os.utime(kept)
        return kept
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Several web processes may start at once: each writes its own draft, and the last rename wins.
        own = kept.with_suffix(f".{os.getpid()}")
        own.write_bytes(gzip.compress(content, LEVEL, mtime=0))
        own.replace(kept)
    except OSError as error:
        logger.warning("static files are served uncompressed: %s cannot be written (%s)", kept, error.strerror)
        return None
    return kept


def remove_unused(folder: Path) -> int:
    """Remove compressed files unused for ``UNUSED_S``, and drafts of dead processes. Returns how many."""
    removed = 0
    for path in folder.glob("*") if folder.is_dir() else ():
        with contextlib.suppress(OSError):  # another process may be removing it
            if time.time() - path.stat().st_mtime > UNUSED_S:
                path.unlink()
                removed += 1
    return removed
