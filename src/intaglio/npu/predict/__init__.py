"""The performance model: how long an NPU program takes on its chip, without the chip."""
