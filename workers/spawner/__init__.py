"""The warm spawner: one process that imports torch and the workers' code once and forks every process of an agent.

Importing torch takes 1.5-2 s, a fork some milliseconds. The spawner has only one thread, since a fork copies only the
calling thread, and all locks in their current state. ``client`` is the agent's side, ``loop`` the spawner's, ``child``
the code in a fork, ``lineage`` ends processes with their agent, ``messages`` is the protocol.
"""
