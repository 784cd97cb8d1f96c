"""Methods that exchange or compare outputs of models (class scores of public samples, or mean features)."""
