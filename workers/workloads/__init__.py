"""Models, data sets and update rules, all with one interface.

Trainer and server know a workload only through ``shape``; names become workloads in ``catalogue``.
"""
