"""LoRA adapters of several ranks: each device trains the adapter rows up to its rank."""
