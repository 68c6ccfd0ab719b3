"""Reproducible measurements: `make bench` or `python -m benchmarks`."""
