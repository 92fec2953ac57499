"""A model of one autoscaled revision: Knative's decisions, pods that share their engine, traces of arrivals."""
