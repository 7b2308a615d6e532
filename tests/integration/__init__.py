"""Everything at once, from the outside: real processes, real sockets."""
