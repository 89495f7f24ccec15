"""Evaluation: generate, score, record, and measure with intervals."""
