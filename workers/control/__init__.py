"""The control sockets of agents, workers and servers: one websocket each that survives every outage.

``outbox`` keeps messages until they are durable, ``socket`` sends them and reconnects, ``links`` is the interface for
the loops of workers and servers. This package only delivers messages; it makes no decisions.
"""
