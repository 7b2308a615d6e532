"""Clients of ours: a connection that the other side ended is given up before it fails anybody."""

import pytest
from redis.exceptions import ConnectionError

from controlplane.runtime.redis import Client, ask, connect, refresh


def end(client: Client, other: Client) -> None:
    """As a Redis that is restarted does with every connection."""
    other.execute_command("CLIENT", "KILL", "ID", ask(client, "CLIENT", "ID"))


def test_a_connection_that_has_ended_fails_the_next_command(client: Client) -> None:
    mine = connect()
    end(mine, client)
    with pytest.raises(ConnectionError):
        ask(mine, "PING")
    mine.close()


def test_a_refreshed_client_has_a_connection_again(client: Client) -> None:
    mine = connect()
    refresh(mine)
    number = ask(mine, "CLIENT", "ID")
    refresh(mine)
    assert ask(mine, "CLIENT", "ID") == number
    end(mine, client)
    refresh(mine)
    assert mine.ping()
    assert ask(mine, "CLIENT", "ID") != number
    mine.close()
