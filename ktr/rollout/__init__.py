"""Sampling completions: one interface, several engines."""
