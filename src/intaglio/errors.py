"""Everything Intaglio raises on purpose.

IntaglioError
├── BadInput      what the user gave cannot be used: a file, a shape, a name, an option
│   └── BadFile   a model or package file that is missing, truncated, corrupt or hostile
├── Unsupported   the model asks for something that Intaglio does not do
└── RunError      a compiled model met data it cannot compute with (an index out of range, say)

A message is one line: what failed, the value, the rule, the remedy.
"""

from __future__ import annotations


class IntaglioError(Exception):
    """Base of every error that Intaglio raises on purpose."""


class BadInput(IntaglioError):
    """What the user gave cannot be used; the message says why and what to do."""


class BadFile(BadInput):
    """A file is missing, truncated, corrupt or not what its name says."""


class Unsupported(IntaglioError):
    """The model needs something that Intaglio does not do; the message says where and why."""


class RunError(IntaglioError):
    """A running model met data that it cannot compute with."""
