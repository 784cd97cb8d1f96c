"""Methods that send or compare outputs of models: scores of public samples, means of features."""
