"""What to tell about files that hold weights, and no model."""

from __future__ import annotations

from typing import Any, NoReturn

from intaglio.errors import Unsupported
from intaglio.frontends.torch.archive import Archive
from intaglio.frontends.torch.unpickle import Record, Stored, unpickle

MANY = 1_000_000  # items that are looked at
ADVICE = (
    "build the network in Python, load the weights with model.load_state_dict(torch.load(path)), "
    "call model.eval(), then save what can be read here: "
    "torch.jit.trace(model, example).save('model.pt') or "
    "torch.export.save(torch.export.export(model, (example,)), 'model.pt2'); or give the live "
    "module itself: intaglio.compile(model, inputs=(example,))"
)


def explain(archive: Archive) -> NoReturn:
    """Unsupported: a file of torch.save has tensors by name and not what is computed with them."""
    name = next((n for n in archive.names if n.endswith("data.pkl")), "data.pkl")
    stored = unpickle(archive.read(name), archive.what, outline=True)
    raise Unsupported(
        f"{archive.what} holds {describe(stored)}, and no network: which layers "
        f"there are and how they follow each other is in the Python code that "
        f"trained it; {ADVICE}"
    )


def explain_old(what: str) -> NoReturn:
    raise Unsupported(
        f"{what} was written by torch.save before PyTorch 1.6: it holds weights, or "
        f"a pickled Python object, and no network; {ADVICE}"
    )


def describe(stored: Any) -> str:
    """What torch.save was given."""
    found = tensors_in(stored)
    if isinstance(stored, Record):
        return f"a pickled Python object of class {stored.name[:80]} with {len(found)} tensors"
    if isinstance(stored, dict) and found:
        first = ", ".join(found[:3])
        more = ", ..." if len(found) > 3 else ""
        outer = [str(k) for k, v in stored.items() if not isinstance(v, Stored)]
        inside = f" (a checkpoint with {', '.join(outer[:5])})" if outer else ""
        return f"the weights alone: {len(found)} tensors ({first}{more}){inside}"
    return f"a Python object with {len(found)} tensors"


def tensors_in(stored: Any) -> list[str]:
    """Names of the tensors inside of nested mappings."""
    found: list[str] = []
    stack, steps = [("", stored)], 0
    while stack and steps < MANY:
        steps += 1
        name, x = stack.pop()
        front = f"{name}." if name else ""
        if isinstance(x, Record):
            x = x.state
        if isinstance(x, Stored):
            found.append(name or "tensor")
        elif isinstance(x, dict):
            stack += [(f"{front}{k}"[:200], v) for k, v in reversed(x.items())]
        elif isinstance(x, list | tuple):
            stack += [(f"{front}{i}"[:200], v) for i, v in reversed(list(enumerate(x)))]
    return found
