"""Agents: their sockets, their spawner, their state on disk, and their whole life as real processes."""
