"""PSP on a structured overlay: workers that know a few others, and find random ones by keys on a ring."""
