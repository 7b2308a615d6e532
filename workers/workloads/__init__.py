"""What is trained on what: models, data sets and update rules, all of one shape.

Trainer and server know a workload only through ``shape``; names become workloads in ``catalogue``.
"""
