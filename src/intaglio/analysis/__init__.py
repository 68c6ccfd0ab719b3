"""What a compiled model costs, and why."""
