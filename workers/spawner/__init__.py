"""The warm spawner: one process that imports torch and the workers' code once and forks every process of an agent.

Importing torch takes 1.5-2 s, a fork some milliseconds. The spawner never has a second thread, since a fork copies
only the thread that called it and every lock as it is. ``client`` is the agent's side, ``loop`` the spawner's,
``child`` what happens in a fork, ``lineage`` how processes end with their agent, ``messages`` what the two send.
"""
