"""The control sockets of agents, workers and servers: one websocket each that survives every outage.

``outbox`` keeps what was said until it is durable, ``socket`` carries it and reconnects, ``links`` is what the loops
of workers and servers see. Nothing here decides; it delivers.
"""
