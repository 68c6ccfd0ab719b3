"""The command lines of tpu-mlir: from a model file to a bmodel or cvimodel, in steps."""
