"""Hydra accepts launchers from this namespace only; what they do is in `launchers/`."""
