"""History: every event as it was logged, reports and evaluations as rows, and the cursors of ingest."""
