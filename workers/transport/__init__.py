"""Framed TCP for parameter blocks: one connection per worker and server.

This package has the frames, the handshake, the client side of a connection, and the typed errors. It has no knowledge
of quorums, optimizers or the meaning of iterations, which belong to the server and the trainer.
"""
