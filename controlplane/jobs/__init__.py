"""Jobs, their workers and servers, decisions and flags. All rows except submissions are projections of the log."""
