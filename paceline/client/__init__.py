"""Typed client of a control plane's REST API.

``operations`` defines requests and how replies are read, without I/O; ``retries`` decides what is sent again, and when;
``sync`` and ``awaited`` only send requests and know nothing else about the API.
"""
