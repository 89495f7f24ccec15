"""Training: packed scoring, the objective, and the SFT and GRPO trainers built on TRL."""
