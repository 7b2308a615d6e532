"""Raises the limit of open files and sockets of this process."""

import contextlib
import resource

MOST_DESCRIPTORS = 65_536


def allow_descriptors() -> int:
    """Raise the limit of this process, and of those that it starts, to the hard limit; return the current limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
