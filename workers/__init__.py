"""The data plane: agents that offer machines, workers that train, servers that hold parameters.

Imports ``controlplane.protocol`` and nothing else of ours. Reports; never decides.
"""
