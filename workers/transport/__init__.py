"""Framed TCP for parameter blocks: one connection per worker and server.

Owns the frames, the handshake, the worker's end of a connection, and the typed errors. Knows nothing of quorums,
optimizers or iterations' meaning; those are the server's and the trainer's.
"""
