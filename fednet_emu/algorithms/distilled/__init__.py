"""Methods that send or compare what models say of samples: scores of public ones, means of features."""
