"""Errors of the data plane, by cause and cure."""


class TransportError(Exception):
    """Base of all errors of the data plane."""


class Interrupted(TransportError):
    """The connection cannot be used further; a new one may work, and unacknowledged requests are sent again."""


class ConnectionClosed(Interrupted):
    """The peer ended the connection, or died."""


class GivenUp(Interrupted):
    """A request was waiting when this side gave up its connection."""


class BadHeader(Interrupted):
    """The received data is not a frame of this protocol: wrong magic, version, checksum or operation."""


class BadPayload(Interrupted):
    """A payload that does not match its checksum."""


class Oversized(BadHeader):
    """A frame announces a payload larger than is accepted here."""


class Unauthorised(TransportError):
    """Authentication failed; a retry with the same key will not help."""


class Unencrypted(TransportError):
    """Parameters would leave this machine unencrypted, which its owner has not allowed."""


class Refused(TransportError):
    """The server refused the request; the message has its reason."""


class ServerLost(TransportError):
    """A server could not be reached again in time."""


class Stopped(TransportError):
    """The process was requested to end while it waited."""
