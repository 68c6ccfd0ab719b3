"""The package file `.itg`: one flat file that the native runtime maps and runs."""
