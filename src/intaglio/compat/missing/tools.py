"""The packages `tools` and `utils` of tpu-mlir's folder python, for what MISSING has of them."""
