"""What to tell about files that hold weights, and no model."""

from __future__ import annotations

from typing import Any, NoReturn

from intaglio.errors import Unsupported
from intaglio.frontends.torch.archive import Archive
from intaglio.frontends.torch.pickled import Record, Stored, unpickle

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
    raise Unsupported(f"{archive.what} holds {describe(stored)}, and no network: which layers "
                      f"there are and how they follow each other is in the Python code that "
                      f"trained it; {ADVICE}")  # fmt: skip


def explain_old(what: str) -> NoReturn:
    raise Unsupported(f"{what} was written by torch.save before PyTorch 1.6: it holds weights, or "
                      f"a pickled Python object, and no network; {ADVICE}")  # fmt: skip


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


def tensors_in(x: Any, name: str = "", depth: int = 0) -> list[str]:
    """Names of the tensors inside of nested mappings."""
    if isinstance(x, Stored):
        return [name or "tensor"]
    if isinstance(x, Record):
        x = x.state
    if depth > 20:
        return []
    if isinstance(x, dict):
        return [n for k, v in x.items()
                for n in tensors_in(v, f"{name}.{k}" if name else str(k), depth + 1)]  # fmt: skip
    if isinstance(x, list | tuple):
        return [n for i, v in enumerate(x) for n in tensors_in(v, f"{name}.{i}", depth + 1)]
    return []
