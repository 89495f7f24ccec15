"""Runs on a cluster and beside one another: sweeps as Slurm jobs, their state, and dependent stages."""
