"""Websockets of workers, servers, agents and pages: bytes in, events out; commands in, bytes out. No decisions.

Channels routes and authenticates connections. Messages bypass its consumers, which cost several times what they carry.
"""
