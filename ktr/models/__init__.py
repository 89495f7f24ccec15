"""Model families, positions, prompt encoding and checkpoint loading."""
