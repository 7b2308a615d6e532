"""Tests a machine: compute, memory and links, in a separate process with a time limit.

The agent starts ``python -m workers.preflight`` with the order on standard input, and forwards its results, one JSON
message per line.
"""
