"""Messages of a browser's websocket: numbered ticks, as JSON. Figures and tables are fetched, never pushed."""

from controlplane.protocol.base import Count, Value, Word


class Tick(Value, frozen=True, kw_only=True, tag="tick"):
    """Data of a page has changed. ``seq`` increases by one; after a gap the page refetches."""

    seq: Count
    at_ms: Count
    jobs: dict[Count, Word] = {}
    """Jobs with new rows, and their state."""
    fleet: bool = False
    """Whether agents or slots changed."""
    alerts: bool = False
    """Whether an alert began to fire or resolved, or a message was delivered or not."""
