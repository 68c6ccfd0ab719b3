"""Writers of other formats."""
