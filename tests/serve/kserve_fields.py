"""The fields of KServe's and Kubernetes' objects that manifests here may use, and their types.

They are facts of KServe's CustomResourceDefinitions (August 2026), of which these are a small part.
A name with "!" must be there; "*" is any name.
"""

from __future__ import annotations

from typing import Any

QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
NUMBER = {"type": "integer", "format": "int32"}
EITHER = {"x-kubernetes-int-or-string": True}
AMOUNT = {"x-kubernetes-int-or-string": True, "pattern": QUANTITY}
RESOURCES = {"requests": {"*": AMOUNT}, "limits": {"*": AMOUNT}}
PROBE = {
    "httpGet": {"path": str, "port!": EITHER, "scheme": str},
    "initialDelaySeconds": NUMBER, "periodSeconds": NUMBER, "timeoutSeconds": NUMBER,
    "failureThreshold": NUMBER,
}  # fmt: skip
CONTAINER = {
    "name!": str, "image": str, "command": [str], "args": [str], "resources": RESOURCES,
    "ports": [{"containerPort!": NUMBER, "name": str, "protocol": str}],
    "readinessProbe": PROBE, "livenessProbe": PROBE,
    "securityContext": {
        "allowPrivilegeEscalation": bool, "capabilities": {"add": [str], "drop": [str]},
        "privileged": bool, "readOnlyRootFilesystem": bool, "runAsNonRoot": bool,
    },
}  # fmt: skip
RUNTIME = {
    "annotations": {"*": str},
    "containers!": [CONTAINER],
    "protocolVersions": [str],
    "supportedModelFormats": [
        {"name!": str, "version": str, "autoSelect": bool, "priority": NUMBER | {"minimum": 1}}
    ],
}
SERVICE = {
    "predictor!": {
        "canaryTrafficPercent": {"type": "integer", "format": "int64"},
        "minReplicas": NUMBER, "maxReplicas": NUMBER, "scaleTarget": NUMBER,
        "scaleMetric": {"type": "string", "enum": ["cpu", "memory", "concurrency", "rps"]},
        "model": {
            "modelFormat": {"name!": str, "version": str}, "runtime": str, "storageUri": str,
            "protocolVersion": str, "resources": RESOURCES,
        },
    }
}  # fmt: skip
KINDS = {
    "ServingRuntime": ("servingruntimes", "v1alpha1", RUNTIME),
    "InferenceService": ("inferenceservices", "v1beta1", SERVICE),
}
TYPES = {str: "string", bool: "boolean"}


def schema(fields: Any) -> dict[str, Any]:
    """The OpenAPI schema of these fields."""
    if isinstance(fields, type):
        return {"type": TYPES[fields]}
    if isinstance(fields, list):
        return {"type": "array", "items": schema(fields[0])}
    if "type" in fields or "x-kubernetes-int-or-string" in fields:
        return dict(fields)
    if "*" in fields:
        return {"type": "object", "additionalProperties": schema(fields["*"])}
    made: dict[str, Any] = {"type": "object"}
    made["properties"] = {name.rstrip("!"): schema(f) for name, f in fields.items()}
    if required := [name[:-1] for name in fields if name.endswith("!")]:
        made["required"] = required
    return made


def definition(kind: str) -> dict[str, Any]:
    """A CustomResourceDefinition with these fields only."""
    _, version, fields = KINDS[kind]
    whole = {"apiVersion": str, "kind": str, "spec": fields}
    made = schema(whole)
    made["properties"]["metadata"] = {"type": "object"}
    versions = [{"name": version, "schema": {"openAPIV3Schema": made}}]
    return {"spec": {"names": {"kind": kind}, "versions": versions}}


def differences(ours: dict[str, Any], theirs: dict[str, Any], path: str) -> list[str]:
    """Where KServe's schema says something else."""
    found = [
        f"{path}: {key} is {theirs.get(key)!r}, not {value!r}"
        for key, value in ours.items()
        if key not in ("properties", "items", "additionalProperties", "required")
        and theirs.get(key) != value
    ]
    if sorted(ours.get("required", ())) != sorted(theirs.get("required", ())):
        found.append(f"{path}: {theirs.get('required')} are required")
    for name, field in ours.get("properties", {}).items():
        known = theirs.get("properties", {}).get(name)
        found += [f"{path}.{name}: unknown"] if known is None else differences(
            field, known, f"{path}.{name}"
        )  # fmt: skip
    for key in ("items", "additionalProperties"):
        if key in ours:
            found += differences(ours[key], theirs[key], f"{path}[]")
    return found
