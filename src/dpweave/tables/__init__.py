"""Table models: clients of the wall that turn noisy marginals of one table into rows."""
