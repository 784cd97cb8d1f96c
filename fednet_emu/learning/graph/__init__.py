"""The deferred learning graph: values that are computed when somebody reads them."""
