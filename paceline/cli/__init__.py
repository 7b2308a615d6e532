"""The console command ``paceline``. What needs the control plane itself is handed on to where that is installed."""
