"""The whole control plane on one machine: its services as child processes that end with their parent.

It handles commands, folders, ports and signals, not jobs. ``up``, ``demo`` and the integration tests use it.
"""
