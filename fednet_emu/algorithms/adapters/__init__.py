"""LoRA adapters of several ranks: each device trains the rows up to its rank."""
