"""Metadata and configuration of a served model, in the words of the protocol and of Triton."""

from __future__ import annotations

from typing import Any

from intaglio.serve.repository import PACKAGE, Entry
from intaglio.serve.served_model import ServedModel
from intaglio.serve.settings import LABELS_FILE
from intaglio.serve.tensors import TensorSpec

BACKEND = "intaglio"
CHANNELS = (1, 3, 4)  # of pictures


def metadata(model: ServedModel, entry: Entry) -> dict[str, Any]:
    """The answer to GET /v2/models/NAME."""
    signature = model.signature
    return {
        "name": model.name,
        "versions": [str(n) for n in sorted(entry.serving)],
        "platform": BACKEND,  # as Triton says of models with a backend
        "inputs": [_tensor(model, t) for t in signature.inputs.values()],
        "outputs": [_tensor(model, t) for t in signature.outputs.values()],
    }


def _tensor(model: ServedModel, t: TensorSpec) -> dict[str, Any]:
    shape = [-1, *t.shape[1:]] if model.signature.plans else list(t.shape)
    return {"name": t.name, "datatype": t.datatype, "shape": shape}


def config(model: ServedModel) -> dict[str, Any]:
    """The answer to GET /v2/models/NAME/config."""
    signature, settings = model.signature, model.settings
    made: dict[str, Any] = {
        "name": model.name,
        "platform": "",
        "backend": BACKEND,
        "version_policy": _policy(settings.versions),
        "max_batch_size": signature.max_batch,
        "input": [
            made | {"format": _layout(made["dims"])}
            for made in (_described(model, t) for t in signature.inputs.values())
        ],
        "output": [
            _described(model, t) | {"label_filename": LABELS_FILE if settings.labels else ""}
            for t in signature.outputs.values()
        ],
        "instance_group": [{"name": f"{model.name}_0", "kind": "KIND_CPU", "count": _count(model)}],
        "default_model_filename": PACKAGE,
    }
    if signature.stateful:
        idle = settings.sequence_idle_s * 1_000_000
        made["sequence_batching"] = {"max_sequence_idle_microseconds": idle, "direct": {}}
    elif signature.plans:
        made["dynamic_batching"] = {
            "preferred_batch_size": list(settings.preferred) or sorted(signature.plans)[-8:],
            "max_queue_delay_microseconds": settings.max_delay_us,
        }
    return made


def _described(model: ServedModel, t: TensorSpec) -> dict[str, Any]:
    dims = list(t.shape[1:]) if model.signature.plans else list(t.shape)
    return {"name": t.name, "data_type": f"TYPE_{t.datatype}", "dims": dims}


def _layout(dims: list[int]) -> str:
    """Where a picture has its channels, as Triton's clients of pictures ask."""
    if len(dims) != 3 or (dims[0] in CHANNELS) == (dims[2] in CHANNELS):
        return "FORMAT_NONE"
    return "FORMAT_NCHW" if dims[0] in CHANNELS else "FORMAT_NHWC"


def _count(model: ServedModel) -> int:
    return 1 if model.signature.stateful else model.settings.instances


def _policy(versions: Any) -> dict[str, Any]:
    if versions == "all":
        return {"all": {}}
    if isinstance(versions, str):
        return {"latest": {"num_versions": int(versions.partition(":")[2] or 1)}}
    return {"specific": {"versions": list(versions)}}
