"""The functional simulator: what NPU programs compute, in numpy."""
