"""One parameter server: blocks of parameters, the contributions that complete an iteration, and the update rule.

A block's iteration is complete when every member that counts in it has contributed; quorums are sets of members, not
counts. Orders name the members and this server's blocks; nothing is decided here.
"""
