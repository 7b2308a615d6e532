"""Virtual time, the very engine and policies of the live system, and models of machines, networks and mathematics."""
