"""One parameter server: blocks of parameters, whose contributions close an iteration, and the rule that applies them.

A block's iteration closes when every member that counts in it has contributed; quorums are sets of members, never
counts. Nothing is decided here: orders name the members and the blocks of this server.
"""
