"""Machine learning, independent of simulated time: data, models, engines, and the deferred computation graph."""
