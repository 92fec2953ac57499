"""The Open Inference Protocol (KServe v1 and v2, Triton's extensions) over REST and gRPC."""
