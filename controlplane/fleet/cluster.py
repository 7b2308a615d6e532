"""A Kubernetes cluster from which pods may join as machines: its API server, and the allowed service accounts."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from controlplane.protocol.text import is_plain

AUDIENCE: Final = "paceline"
"""The audience of a pod's token: a token for the API server itself is never sent to another service."""

ANY: Final = "*"
NAME: Final = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
ENTRY: Final = re.compile(rf"(?P<namespace>{NAME})/(?P<account>{NAME}|\*)(:(?P<labels>[^\s:]+))?")


class MalformedEntry(ValueError):
    """An entry of the accounts is malformed; the text is the entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A service account with which pods may join, and the labels that they get."""

    namespace: str
    account: str
    """The account's name; ``*``: each account of the namespace."""
    labels: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.account}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The configuration that is needed to review one cluster's tokens."""

    accounts: Sequence[Account]
    api: str
    ca: Path
    token: Path
    """Path of the control plane's own token. It is read at each review, since the kubelet renews it."""
    remove_after: timedelta | None
    """How long a machine that joined from a pod may be offline before it is removed; None: forever."""

    def account(self, namespace: str, account: str) -> Account | None:
        """The first entry for this service account."""
        return next(
            (each for each in self.accounts if each.namespace == namespace and each.account in (account, ANY)), None
        )


def parse_accounts(text: str) -> list[Account]:
    """``paceline/agents:pool=default,zone=b ml/*``.

    Raises:
        MalformedEntry: if an entry is not of that form.
    """
    return [_account(entry) for entry in text.split()]


def _account(entry: str) -> Account:
    match = ENTRY.fullmatch(entry)
    pairs = [pair.partition("=") for pair in match["labels"].split(",")] if match and match["labels"] else []
    if match is None or not all(key and equals and value and is_plain(key + value) for key, equals, value in pairs):
        raise MalformedEntry(entry)
    return Account(
        namespace=match["namespace"], account=match["account"], labels={key: value for key, _, value in pairs}
    )
