"""The module path under which onnxruntime keeps its exceptions."""
