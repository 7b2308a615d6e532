"""What is measured: each module prints one figure, and the settings that it was measured under."""
