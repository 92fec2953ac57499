"""What `benchmarks.soak` is made of: the requests, those who leave, what the processes hold, and the verdict."""
