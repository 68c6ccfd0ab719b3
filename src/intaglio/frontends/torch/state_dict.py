"""Error messages for files of torch.save, which hold weights but no network."""

from __future__ import annotations

from typing import Any, NoReturn

from intaglio.errors import Unsupported
from intaglio.frontends.torch.archive import Archive
from intaglio.frontends.torch.unpickle import Record, Stored, unpickle

MAX_ITEMS = 1_000_000  # that are searched for tensors
ADVICE = (
    "build the network in Python, load the weights with model.load_state_dict(torch.load(path)), "
    "call model.eval(), then save the model: "
    "torch.jit.trace(model, example).save('model.pt') or "
    "torch.export.save(torch.export.export(model, (example,)), 'model.pt2'); or give the live "
    "module itself: intaglio.compile(model, inputs=(example,))"
)


def raise_no_network(archive: Archive) -> NoReturn:
    """Raise Unsupported: a file of torch.save has tensors, but no network."""
    name = next((n for n in archive.names if n.endswith("data.pkl")), "data.pkl")
    stored = unpickle(archive.read(name), archive.what, outline=True)
    raise Unsupported(
        f"{archive.what} holds {describe(stored)}, but no network, which is defined by the Python "
        f"code that trained it; {ADVICE}"
    )


def raise_legacy_file(what: str) -> NoReturn:
    raise Unsupported(
        f"{what} was written by torch.save before PyTorch 1.6: it holds weights, or "
        f"a pickled Python object, but no network; {ADVICE}"
    )


def describe(stored: Any) -> str:
    """A description of the saved object."""
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
    """Names of the tensors in nested containers."""
    found: list[str] = []
    stack, steps = [("", stored)], 0
    while stack and steps < MAX_ITEMS:
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
