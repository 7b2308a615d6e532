"""What several drivers of one conversation must do alike."""
