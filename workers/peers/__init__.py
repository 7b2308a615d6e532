"""Workers that ask one another how far they are, over the data plane."""
