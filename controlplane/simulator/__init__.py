"""Virtual time, the engine and policies of the live system, and models of machines, networks and mathematics."""
