"""Live models: nn.Module, ScriptModule and ExportedProgram objects, exported or traced here."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intaglio.errors import BadInput, Unsupported


def archived(model: Any, inputs: Any) -> bytes:
    """The model as the bytes of a .pt2 or .pt file; `inputs` are example inputs."""
    import torch

    if type(model).__name__ == "ExportedProgram":
        return _exported(model)
    if isinstance(model, torch.jit.ScriptModule):
        return _scripted(model)
    args, kwargs = _examples(inputs)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return _exported(torch.export.export(model, args, kwargs))
            except Exception as e:  # export may fail where tracing works, with any exception
                return _traced(model, args, kwargs, e)
    finally:
        model.train(was_training)


def _examples(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if inputs is None:
        raise BadInput(
            "torch: a live module needs examples of its inputs: "
            "intaglio.load(module, inputs=(example,))"
        )
    if isinstance(inputs, Mapping):
        return (), {k: _tensor(v) for k, v in inputs.items()}
    many = isinstance(inputs, Sequence) and not isinstance(inputs, str)
    return tuple(_tensor(x) for x in (inputs if many else [inputs])), {}


def _tensor(x: Any) -> Any:
    import torch

    if isinstance(x, np.ndarray):
        return torch.from_numpy(x)
    if isinstance(x, list | tuple):
        return type(x)(_tensor(y) for y in x)
    return x


def _traced(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], why: Exception) -> bytes:
    import torch

    try:
        named = {"example_kwarg_inputs": kwargs} if kwargs else {"example_inputs": args}
        return _scripted(torch.jit.trace(model, **named, check_trace=False))
    except Exception as e:
        words = [" ".join(str(x).split())[:200] for x in (why, e)]
        raise Unsupported(
            f"torch: the module can neither be exported ({words[0]}) nor traced ({words[1]})"
        ) from e


def _exported(program: Any) -> bytes:
    import torch

    file = io.BytesIO()
    torch.export.save(program, file)
    return file.getvalue()


def _scripted(module: Any) -> bytes:
    import torch

    file = io.BytesIO()
    torch.jit.save(module, file)
    return file.getvalue()
