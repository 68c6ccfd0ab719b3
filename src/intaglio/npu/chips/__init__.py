"""Encoders of the commands that real NPUs execute, one package per chip."""
