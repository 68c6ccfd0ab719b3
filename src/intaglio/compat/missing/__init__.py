"""Modules that scripts of vendors' examples import and that may be absent: used only then."""
