"""Networks as torch modules. None has BatchNorm: its statistics would depend on which worker has which samples."""
