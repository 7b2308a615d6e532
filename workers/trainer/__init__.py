"""One worker: pulls parameters, computes on its share of the samples, pushes sums, and reports measurements.

It follows orders and makes no decisions. ``loop`` is the training loop; the other modules are its parts.
"""
