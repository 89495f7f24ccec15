"""Key-token reinforcement learning for video reasoning with vision-language models."""

__version__ = "0.1.0"
