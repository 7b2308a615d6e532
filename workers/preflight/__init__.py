"""The test of a machine before it works: compute, memory and links, in a process that the agent ends in time.

The agent starts ``python -m workers.preflight`` with the order on standard input, and passes on what that process
answers, one JSON message a line.
"""
