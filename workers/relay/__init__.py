"""One connection for all processes of a machine: they speak to their agent on a Unix socket, and it to the gateway.

``framing`` is what both sides of the local socket say, ``relay`` the agent's side. A process's side is
``workers.control.local``. Nothing here keeps or reads a message.
"""
