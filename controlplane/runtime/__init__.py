"""The live driver: carries events from Redis to the engine and commands from it, and copies both to the database.

Owns the streams, leases, Celery tasks and everything else between a websocket and ``Engine.handle``. Decides nothing.
"""
