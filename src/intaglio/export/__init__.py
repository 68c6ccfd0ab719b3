"""Export to other formats: ONNX."""
