"""Models, datasets and update rules, all with one interface.

Trainer and server use a workload only through ``shape``; ``catalogue`` creates workloads by name.
"""
