"""Jobs, their workers and servers, decisions and flags. Rows here are projections of the log, except submissions."""
