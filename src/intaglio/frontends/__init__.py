"""Readers of model files: each makes a Graph."""
