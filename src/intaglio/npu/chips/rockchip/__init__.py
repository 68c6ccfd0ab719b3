"""Rockchip's NPU: its registers, and the files of the vendor's compiler."""
