"""Websockets of workers, servers, agents and pages: bytes in, events out; commands in, bytes out. Decides nothing.

Channels routes and authenticates; frequent messages bypass its layers, which cost several times what they carry.
"""
