"""Progress queries between workers over the data plane."""
