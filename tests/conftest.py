"""What every test shares: one thread for torch, and nothing fetched from a hub."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from hypothesis import settings

settings.register_profile("any machine", deadline=None)  # A busy machine is not a fault of the code.
settings.load_profile("any machine")
