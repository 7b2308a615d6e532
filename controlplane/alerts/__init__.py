"""Alerts: rules over what pages know, when they fire and resolve, and who is notified."""
