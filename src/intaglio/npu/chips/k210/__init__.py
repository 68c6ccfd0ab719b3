"""The K210's KPU: its commands, arithmetic and memory, and the kmodel files that hold them."""
