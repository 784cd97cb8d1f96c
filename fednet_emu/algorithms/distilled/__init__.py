"""Methods that send or compare outputs of models: class scores of public samples, or means of features."""
