"""The public surface, one module per protocol: knows requests, not tensors."""
