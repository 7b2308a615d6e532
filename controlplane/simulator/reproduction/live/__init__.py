"""Headlines of the papers measured on real processes, each with its twin: the same scenario, simulated."""
