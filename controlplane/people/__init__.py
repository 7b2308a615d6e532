"""People: how they sign in, from where, and what is recorded of it."""
