"""Long trainings of `intaglio.compress` on CIFAR-10: see `python -m benchmarks.training --help`."""
