"""config.pbtxt of a model for Triton's server with the intaglio backend."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import intaglio
from intaglio.errors import BadInput, Unsupported
from intaglio.files import write_atomically
from intaglio.serve.publish import INCOMING
from intaglio.serve.settings import LABELS_FILE
from intaglio.serve.signature import Signature
from intaglio.serve.tensors import TensorSpec

CONFIG = "config.pbtxt"
MARK = "# Written by `intaglio publish --triton`. Without this line the file is kept as it is.\n"


def config(
    package: str | Path, name: str, *, instances: int = 1, threads: int = 1, labels: str = ""
) -> str:
    """The configuration of a package: batches, inputs, outputs, and a warm-up of every batch."""
    with intaglio.open(package, 1) as session:
        signature = Signature.of(session)
    if signature.stateful:
        raise Unsupported(
            f"'{name}' has a state, which the Triton backend does not keep for each sequence; "
            "serve it with `intaglio serve`"
        )
    sizes = sorted(signature.plans) if None not in signature.plans.values() else []
    skip = 1 if sizes else 0  # Triton's dims leave the batch out
    batched = [t for t in signature.outputs.values() if skip and (not t.shape or t.shape[0] != -1)]
    if batched and len(sizes) > 1:
        raise Unsupported(f"output '{batched[0].name}' of '{name}' has no batch")
    lines = [
        f"name: {_text(name)}",
        'backend: "intaglio"',
        f"max_batch_size: {sizes[-1] if sizes else 0}",
        *_tensors("input", signature.inputs.values(), skip, ""),
        *_tensors("output", signature.outputs.values(), skip, labels),
        f"instance_group [ {{ kind: KIND_CPU count: {instances} }} ]",
        f'parameters {{ key: "threads" value: {{ string_value: "{threads}" }} }}',
    ]
    if sizes and sizes[-1] > 1:
        lines.append(f"dynamic_batching {{ preferred_batch_size: {sizes[-8:]} }}")
    if all(-1 not in t.shape[skip:] for t in signature.inputs.values()):
        lines += [_warm_up(n, signature.inputs.values(), skip) for n in sizes or [0]]
    return MARK + "\n".join(lines) + "\n"


def write_config(package: str | Path, model: Path, *, instances: int, threads: int) -> bool:
    """Write the configuration into a model's folder, unless somebody else's is there."""
    path = model / CONFIG
    with suppress(OSError):  # Triton takes every folder for a model
        os.rmdir(model.parent / INCOMING)
    labels = LABELS_FILE if (model / LABELS_FILE).is_file() else ""
    text = config(package, model.name, instances=instances, threads=threads, labels=labels)
    try:
        if path.exists() and not path.read_text(errors="replace").startswith(MARK):
            return False
        write_atomically(path, text.encode())
    except OSError as e:
        raise BadInput(f"cannot write {path}: {e.strerror}") from None
    return True


def _tensors(key: str, specs: Iterable[TensorSpec], skip: int, labels: str) -> list[str]:
    more = f"label_filename: {_text(labels)} " if labels else ""
    return [
        f"{key} [ {{ name: {_text(t.name)} data_type: TYPE_{t.datatype} "
        f"dims: {_dims(t.shape[skip:])} {more}}} ]"
        for t in specs
    ]


def _dims(shape: Sequence[int]) -> list[int]:
    return list(shape) or [1]


def _warm_up(batch: int, specs: Iterable[TensorSpec], skip: int) -> str:
    """A run of zeros before the model is ready."""
    inputs = " ".join(
        f"inputs {{ key: {_text(t.name)} value {{ data_type: TYPE_{t.datatype} "
        f"dims: {_dims(t.shape[skip:])} zero_data: true }} }}"
        for t in specs
    )
    return f'model_warmup [ {{ name: "batch {batch}" batch_size: {batch} {inputs} }} ]'


def _text(name: str) -> str:
    return json.dumps(name)
