"""One connection for all processes of a machine: they connect to their agent on a Unix socket, and it to the gateway.

``framing`` is the protocol of the local socket, ``relay`` the agent's side, ``process`` the processes' side. Messages
are neither stored nor read here.
"""
