"""How a program is cut: layer groups, bands of rows, and places in on-chip memory."""
