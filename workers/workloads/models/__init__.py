"""Networks as torch modules. None has BatchNorm: its statistics would depend on who got which samples."""
