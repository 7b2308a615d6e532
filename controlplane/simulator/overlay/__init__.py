"""PSP on a structured overlay: each worker knows a few others, and finds random ones by keys on a ring."""
