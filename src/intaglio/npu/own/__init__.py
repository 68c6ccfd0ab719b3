"""The instruction set of Intaglio's own NPU programs (docs/npu-isa.md)."""
