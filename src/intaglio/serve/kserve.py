"""Manifests for KServe: a ServingRuntime of this server, and an InferenceService of a model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import intaglio
from intaglio.errors import BadInput
from intaglio.serve.repository import PACKAGE

RUNTIME = "intaglio-serve"
FORMAT = "intaglio"
MOUNT = "/mnt/models"  # where KServe puts what the storage URI names
HTTP_PORT, GRPC_PORT = 8080, 9000
STOP_S, DRAIN_S = 15, 5
NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?\Z")  # of a service; part of host names
QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|[MGT]|[KMGT]i)?\Z")
TOP_LEVEL = {"apiVersion", "kind", "metadata", "spec", "status"}
STORAGE = ("pvc://", "s3://", "gs://", "https://", "http://", "hf://", "oci://")


@dataclass(frozen=True)
class Service:
    """What a manifest says of a model."""

    name: str
    storage: str  # URI of a folder with model.itg
    image: str  # of a container with `intaglio[serve]`
    cpu: str = "1"
    memory: str = "512Mi"
    min_replicas: int = 1
    max_replicas: int = 1
    concurrency: int | None = None  # requests of a replica that scaling aims for
    canary: int | None = None  # percent of the traffic that the newest revision gets
    grpc: bool = False
    namespace: str | None = None

    def __post_init__(self) -> None:
        if not NAME.match(self.name):
            raise BadInput(
                f"name is '{self.name[:60]}'; a Kubernetes service has small letters, digits and "
                "'-', at most 40, and begins with a letter"
            )
        if not self.storage.startswith(STORAGE):
            raise BadInput(f"storage is '{self.storage[:80]}'; it begins with {', '.join(STORAGE)}")
        for what in ("cpu", "memory"):
            if not QUANTITY.match(getattr(self, what)):
                raise BadInput(f"{what} is '{getattr(self, what)}'; give 2, 500m, 512Mi or 2Gi")
        if not 0 <= self.min_replicas <= max(self.max_replicas, 1):
            raise BadInput(f"replicas are {self.min_replicas} to {self.max_replicas}")
        if self.canary is not None and not 0 <= self.canary <= 100:
            raise BadInput(f"canary is {self.canary}; give percent, 0 to 100")


def serving_runtime(service: Service) -> dict[str, Any]:
    """The container that serves packages."""
    port = GRPC_PORT if service.grpc else HTTP_PORT
    shown: dict[str, Any] = {"containerPort": port, "protocol": "TCP"}
    if service.grpc:
        shown["name"] = "h2c"  # Knative speaks HTTP/2 to it
    return {
        "apiVersion": "serving.kserve.io/v1alpha1",
        "kind": "ServingRuntime",
        "metadata": _metadata(RUNTIME, service),
        "spec": {
            "annotations": {
                "prometheus.kserve.io/port": str(HTTP_PORT),
                "prometheus.kserve.io/path": "/metrics",
            },
            "supportedModelFormats": [
                {"name": FORMAT, "version": "1", "autoSelect": True, "priority": 1}
            ],
            "protocolVersions": ["v2", "grpc-v2"],
            "containers": [
                {
                    "name": "kserve-container",
                    "image": service.image,
                    "command": ["intaglio"],
                    "args": ["serve", f"{MOUNT}/{PACKAGE}", *_options()],
                    "ports": [shown],
                    "resources": _resources(service),
                    "readinessProbe": _probe("/v2/health/ready"),
                    "livenessProbe": _probe("/v2/health/live"),
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                        "privileged": False,
                        "readOnlyRootFilesystem": True,
                        "runAsNonRoot": True,
                    },
                }
            ],
        },
    }


def inference_service(service: Service) -> dict[str, Any]:
    """The model, its storage and its scaling."""
    predictor: dict[str, Any] = {
        "minReplicas": service.min_replicas,
        "maxReplicas": service.max_replicas,
        "model": {
            "modelFormat": {"name": FORMAT},
            "runtime": RUNTIME,
            "protocolVersion": "grpc-v2" if service.grpc else "v2",
            "storageUri": service.storage,
            "resources": _resources(service),
        },
    }
    if service.concurrency is not None:
        predictor |= {"scaleMetric": "concurrency", "scaleTarget": service.concurrency}
    if service.canary is not None:
        predictor["canaryTrafficPercent"] = service.canary
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": _metadata(service.name, service),
        "spec": {"predictor": predictor},
    }


def manifests(service: Service) -> str:
    """Both as YAML."""
    head = f"# Written by intaglio {intaglio.__version__}: kubectl apply -f this file\n"
    documents = [serving_runtime(service), inference_service(service)]
    text: str = yaml.safe_dump_all(documents, sort_keys=False)
    return head + text


def check(document: Any, crd: str | Path) -> list[str]:
    """What a CustomResourceDefinition does not allow in a document: wrong types and values,
    missing and unknown fields. Needs the Python package jsonschema."""
    import jsonschema

    with open(crd, encoding="utf-8") as file:
        spec = yaml.safe_load(file)["spec"]
    version = document["apiVersion"].rpartition("/")[2]
    schemas = {v["name"]: v["schema"]["openAPIV3Schema"] for v in spec["versions"]}
    if document["kind"] != spec["names"]["kind"] or version not in schemas:
        return [f"{document['kind']} {document['apiVersion']} is not of {crd}"]
    validator = jsonschema.Draft7Validator(_strict(schemas[version]))
    return [f"{'/'.join(map(str, e.path))}: {e.message}" for e in validator.iter_errors(document)]


def _strict(schema: Any) -> Any:
    """The schema, which refuses fields that it does not know: Kubernetes would drop them."""
    if isinstance(schema, list):
        return [_strict(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    made = {k: _strict(v) for k, v in schema.items()}
    free = schema.get("x-kubernetes-preserve-unknown-fields")
    known = schema.get("properties")
    if isinstance(known, dict) and not free and set(known) != TOP_LEVEL:
        made.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        made["type"] = ["integer", "string"]
        made.pop("anyOf", None)
    return made


def _options() -> list[str]:
    given = {
        "name": "{{.Name}}",  # KServe fills it in
        "host": "0.0.0.0",
        "port": HTTP_PORT,
        "grpc-port": GRPC_PORT,
        "drain": DRAIN_S,
        "stop": STOP_S,
    }
    return [f"--{name}={value}" for name, value in given.items()]


def _metadata(name: str, service: Service) -> dict[str, Any]:
    made = {"name": name}
    return made if service.namespace is None else made | {"namespace": service.namespace}


def _resources(service: Service) -> dict[str, Any]:
    amounts = {"cpu": service.cpu, "memory": service.memory}
    return {"requests": dict(amounts), "limits": dict(amounts)}


def _probe(path: str) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": HTTP_PORT}, "periodSeconds": 5, "timeoutSeconds": 2}
