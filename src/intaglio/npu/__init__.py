"""Programs for NPUs: cut into tiles that fit the chip's memory, scheduled, and encoded."""
