"""The whole control plane on one machine: its services as child processes that end with whoever started them.

Knows commands, folders, ports and signals, and nothing of jobs. ``up``, ``demo`` and the integration tests start it.
"""
