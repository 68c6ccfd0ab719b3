"""Serves compiled models over HTTP and gRPC by the Open Inference Protocol."""
