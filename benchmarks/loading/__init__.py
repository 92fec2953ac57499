"""What `benchmarks/load.py` is made of: a client, the loads it is under, and figures of what it heard."""
