"""Bulk synchronous parallel: no worker starts an iteration before all have finished the one before."""

from typing import ClassVar

from controlplane.core.barriers import Progress, Release


class Bsp:
    """Grants all workers the same iterations, ahead of the slowest worker.

    The servers close an iteration only when every member of the roster has contributed, and a pull waits for the
    resulting version: that is the barrier. Grants may therefore be ``lead`` iterations ahead of it without any worker
    passing it; with a lead of 1 the watermark alone is the barrier.
    """

    name: ClassVar[str] = "bsp"
    synchronous: ClassVar[bool] = True

    def release(self, progress: Progress) -> dict[int, Release]:
        """Up to ``lead`` iterations past the last one that every worker has finished."""
        if not progress.done:
            return {}
        slowest = min(progress.done, key=lambda rank: (progress.done[rank], rank))
        # A worker that joined in a later generation need not report earlier iterations.
        all_done = max(progress.done[slowest], progress.first_iteration - 1)
        watermark = all_done + max(1, progress.lead)
        release = Release(watermark=watermark, reason=_reason(progress, all_done, watermark))
        return dict.fromkeys(sorted(progress.done), release)


def _reason(progress: Progress, all_done: int, watermark: int) -> str:
    count = len(progress.done)
    if all_done < progress.first_iteration:
        since = f"{count} workers begin at iteration {progress.first_iteration}"
    else:
        since = f"all {count} workers have finished iteration {all_done}"
    return f"{since}; they may continue to {watermark}, the servers hold each iteration until all have contributed"
