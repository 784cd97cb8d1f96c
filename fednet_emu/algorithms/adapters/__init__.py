"""LoRA adapters of several ranks: each device trains as many rows as suit it."""
