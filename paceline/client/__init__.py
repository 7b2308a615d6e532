"""A control plane from the outside: its REST API, typed.

``operations`` says what is asked and what the answers mean, without any I/O; ``retries`` what is asked again, and when;
``sync`` and ``awaited`` only carry requests, so that neither has an idea of its own of what the API is.
"""
