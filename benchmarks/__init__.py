"""One command per claim that the documents make about speed, scaling and start."""
