"""The data plane: agents that offer machines, workers that train, servers that hold parameters.

Imports ``controlplane.protocol`` and no other package of Paceline. Reports; never decides.
"""
