"""The rules that turn neutral ops into `npu.` ops, and the limits of chips that they obey."""
