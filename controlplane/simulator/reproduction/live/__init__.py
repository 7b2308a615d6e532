"""Headlines of the papers measured on real processes, each beside its twin: the same scenario, simulated."""
