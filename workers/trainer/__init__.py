"""One worker: pulls parameters, computes on its share of the samples, pushes sums, and reports what it measured.

It follows orders and decides nothing. ``loop`` is the whole of it; the other modules are its tools.
"""
