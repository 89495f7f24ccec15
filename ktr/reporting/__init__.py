"""Reporting: summaries, coloured token pages, and one self-contained HTML page per run."""
