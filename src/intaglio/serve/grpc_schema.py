"""The messages of the gRPC service, from a table: no generated code, no protoc.

A line `Name` begins a message; its fields follow as `[repeated|map] type name number`, those of a
oneof after `oneof`. Names inside of a message have a dot. The field numbers are the protocol's.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"
METHODS = (
    "ServerLive", "ServerReady", "ServerMetadata", "ModelReady", "ModelMetadata", "ModelConfig",
    "ModelStatistics", "ModelInfer", "RepositoryIndex", "RepositoryModelLoad",
    "RepositoryModelUnload",
)  # fmt: skip
HEALTH = "grpc.health.v1.Health"  # the service that gRPC's own probes ask
MISSING = {  # methods of Triton's other extensions
    f"{kind}SharedMemory{action}": "shared memory"
    for kind in ("System", "Cuda")
    for action in ("Status", "Register", "Unregister")
} | {"TraceSetting": "trace settings", "LogSettings": "log settings"}
ENUMS = {
    "DataType": (
        "TYPE_INVALID", "TYPE_BOOL", "TYPE_UINT8", "TYPE_UINT16", "TYPE_UINT32", "TYPE_UINT64",
        "TYPE_INT8", "TYPE_INT16", "TYPE_INT32", "TYPE_INT64", "TYPE_FP16", "TYPE_FP32",
        "TYPE_FP64", "TYPE_STRING", "TYPE_BF16",
    ),
}  # fmt: skip
MESSAGES = """
ServerLiveRequest
ServerLiveResponse: bool live 1
ServerReadyRequest
ServerReadyResponse: bool ready 1
ModelReadyRequest: string name 1; string version 2
ModelReadyResponse: bool ready 1
ServerMetadataRequest
ServerMetadataResponse: string name 1; string version 2; repeated string extensions 3
ModelMetadataRequest: string name 1; string version 2
TensorMetadata: string name 1; string datatype 2; repeated int64 shape 3
ModelMetadataResponse: string name 1; repeated string versions 2; string platform 3;
  repeated TensorMetadata inputs 4; repeated TensorMetadata outputs 5
InferParameter: oneof bool bool_param 1; oneof int64 int64_param 2; oneof string string_param 3;
  oneof double double_param 4; oneof uint64 uint64_param 5
InferTensorContents: repeated bool bool_contents 1; repeated int32 int_contents 2;
  repeated int64 int64_contents 3; repeated uint32 uint_contents 4;
  repeated uint64 uint64_contents 5; repeated float fp32_contents 6;
  repeated double fp64_contents 7; repeated bytes bytes_contents 8
InferInputTensor: string name 1; string datatype 2; repeated int64 shape 3;
  map InferParameter parameters 4; InferTensorContents contents 5
InferRequestedOutputTensor: string name 1; map InferParameter parameters 2
ModelInferRequest: string model_name 1; string model_version 2; string id 3;
  map InferParameter parameters 4; repeated InferInputTensor inputs 5;
  repeated InferRequestedOutputTensor outputs 6; repeated bytes raw_input_contents 7
InferOutputTensor: string name 1; string datatype 2; repeated int64 shape 3;
  map InferParameter parameters 4; InferTensorContents contents 5
ModelInferResponse: string model_name 1; string model_version 2; string id 3;
  map InferParameter parameters 4; repeated InferOutputTensor outputs 5;
  repeated bytes raw_output_contents 6
ModelStreamInferResponse: string error_message 1; ModelInferResponse infer_response 2
ModelConfigRequest: string name 1; string version 2
Latest: uint32 num_versions 1
All
Specific: repeated int64 versions 1
ModelVersionPolicy: oneof Latest latest 1; oneof All all 2; oneof Specific specific 3
ModelInput: string name 1; DataType data_type 2; int32 format 3; repeated int64 dims 4
ModelOutput: string name 1; DataType data_type 2; repeated int64 dims 3;
  string label_filename 4
ModelInstanceGroup: string name 1; int32 count 2; int32 kind 4
ModelDynamicBatching: repeated int32 preferred_batch_size 1;
  uint64 max_queue_delay_microseconds 2
StrategyDirect
ModelSequenceBatching: uint64 max_sequence_idle_microseconds 1; oneof StrategyDirect direct 3
ModelConfig: string name 1; string platform 2; string backend 17;
  ModelVersionPolicy version_policy 3; int32 max_batch_size 4; repeated ModelInput input 5;
  repeated ModelOutput output 6; repeated ModelInstanceGroup instance_group 7;
  string default_model_filename 8; oneof ModelDynamicBatching dynamic_batching 11;
  oneof ModelSequenceBatching sequence_batching 13
ModelConfigResponse: ModelConfig config 1
ModelStatisticsRequest: string name 1; string version 2
StatisticDuration: uint64 count 1; uint64 ns 2
InferStatistics: StatisticDuration success 1; StatisticDuration fail 2; StatisticDuration queue 3;
  StatisticDuration compute_input 4; StatisticDuration compute_infer 5;
  StatisticDuration compute_output 6; StatisticDuration cache_hit 7; StatisticDuration cache_miss 8
InferBatchStatistics: uint64 batch_size 1; StatisticDuration compute_input 2;
  StatisticDuration compute_infer 3; StatisticDuration compute_output 4
ModelStatistics: string name 1; string version 2; uint64 last_inference 3;
  uint64 inference_count 4; uint64 execution_count 5; InferStatistics inference_stats 6;
  repeated InferBatchStatistics batch_stats 7
ModelStatisticsResponse: repeated ModelStatistics model_stats 1
ModelRepositoryParameter: oneof bool bool_param 1; oneof int64 int64_param 2;
  oneof string string_param 3; oneof bytes bytes_param 4
RepositoryIndexRequest: string repository_name 1; bool ready 2
ModelIndex: string name 1; string version 2; string state 3; string reason 4
RepositoryIndexResponse: repeated ModelIndex models 1
RepositoryModelLoadRequest: string repository_name 1; string model_name 2;
  map ModelRepositoryParameter parameters 3
RepositoryModelLoadResponse
RepositoryModelUnloadRequest: string repository_name 1; string model_name 2;
  map ModelRepositoryParameter parameters 3
RepositoryModelUnloadResponse
HealthCheckRequest: string service 1
HealthCheckResponse: int32 status 1
"""
Field = descriptor_pb2.FieldDescriptorProto


def _file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="intaglio_inference.proto", package=PACKAGE, syntax="proto3"
    )
    for name, values in ENUMS.items():
        enum = file.enum_type.add(name=name)
        for number, value in enumerate(values):
            enum.value.add(name=value, number=number)
    for line in MESSAGES.replace("\n  ", " ").strip().splitlines():
        name, _, fields = line.partition(":")
        message = file.message_type.add(name=name)
        for text in filter(None, map(str.strip, fields.split(";"))):
            _add_field(message, text.split())
    return file


def _add_field(message: Any, words: list[str]) -> None:
    *kind, of, name, number = words
    field = message.field.add(name=name, number=int(number), label=Field.LABEL_OPTIONAL)
    if kind == ["map"]:
        entry = message.nested_type.add(name=f"{name.title()}Entry")
        entry.options.map_entry = True
        _add_field(entry, ["string", "key", "1"])
        _add_field(entry, [of, "value", "2"])
        of = f"{message.name}.{entry.name}"
    if kind in (["map"], ["repeated"]):
        field.label = Field.LABEL_REPEATED
    if kind == ["oneof"]:
        if not message.oneof_decl:
            message.oneof_decl.add(name="choice")
        field.oneof_index = 0
    scalar = f"TYPE_{of.upper()}"
    if of[0].islower():
        field.type = Field.Type.Value(scalar)
    else:
        field.type = Field.TYPE_ENUM if of in ENUMS else Field.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{of}"


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()  # apart from other users of the same package name
    pool.Add(_file())
    file = pool.FindFileByName("intaglio_inference.proto")
    return {
        name: message_factory.GetMessageClass(descriptor)
        for name, descriptor in file.message_types_by_name.items()
    }


CLASSES = _classes()
