"""What `benchmarks.bench` measures: the engine on one model, in this process, beside upstream's structure."""
