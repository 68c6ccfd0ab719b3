"""Sophgo's BM1684, the first generation: bytes in words of four images, results shifted right."""
