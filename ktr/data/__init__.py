"""Rows, media and prompts."""
