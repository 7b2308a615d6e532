"""The live driver: carries events from Redis to the engine and commands from it, and copies both to the database.

It owns the streams, leases, Celery tasks and all else between a websocket and ``Engine.handle``. It makes no decisions.
"""
