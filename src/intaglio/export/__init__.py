"""Export to other formats: ONNX, and C projects for boards."""
