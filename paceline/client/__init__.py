"""Typed client of a control plane's REST API.

``operations`` defines requests and the meaning of replies, without any I/O; ``retries`` decides what is sent again, and
when; ``sync`` and ``awaited`` only carry requests and know nothing else about the API.
"""
