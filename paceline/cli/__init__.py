"""The console command ``paceline``. Commands of the control plane are delegated to its packages."""
