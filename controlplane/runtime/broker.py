"""Reconnects Celery to its broker: retries within a second, without limit, and does not restore fetched tasks."""

from typing import Any, Final

from celery.app.amqp import AMQP
from kombu.connection import Connection
from kombu.transport.redis import Channel

ASK_AGAIN_S: Final = 0.2
MOST_S: Final = 1.0
"""Celery's own way is to wait 2 s longer each time, up to 30 s; a Redis that is back should not be waited for."""

# What was fetched and not begun is left to `rescue`, and not given back over a connection that is gone.
Channel.do_restore = False


class Asking(Connection):
    """A connection that is asked for again soon."""

    def ensure_connection(self, *arguments: Any, **options: Any) -> Any:
        """The connection, once it is there."""
        soon = {"interval_start": ASK_AGAIN_S, "interval_step": ASK_AGAIN_S, "interval_max": MOST_S}
        return super().ensure_connection(*arguments, **(soon | options))


class Broker(AMQP):
    """What Celery makes its connections of."""

    Connection = Asking
