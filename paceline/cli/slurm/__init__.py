"""``paceline slurm``: jobs whose ranks or agents Slurm starts."""
