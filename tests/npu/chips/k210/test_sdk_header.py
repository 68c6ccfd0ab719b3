"""kmodel 3 read by the structs of the standalone SDK's kpu.h, independently of our reader."""

import ctypes as c

import numpy as np
import pytest
from tests.npu.chips.k210.mobilenets import mobilenet_v1
from tests.npu.chips.k210.quantized_cnn import random_cnn

from intaglio.npu.chips.k210.compile import compile_kmodel
from intaglio.npu.chips.k210.model import Conv, CpuLayer, Upload

U32, F32 = c.c_uint32, c.c_float


def struct_of(**fields):
    return type("Struct", (c.LittleEndianStructure,), {"_fields_": list(fields.items())})


HEADER = struct_of(
    version=U32,
    flags=U32,
    arch=U32,
    layers_length=U32,
    max_start_address=U32,
    main_mem_usage=U32,
    output_count=U32,
)
OUTPUT = struct_of(address=U32, size=U32)
LAYER = struct_of(type=U32, body_size=U32)
CONV = struct_of(
    flags=U32,
    main_mem_out_address=U32,
    layer_offset=U32,
    weights_offset=U32,
    bn_offset=U32,
    act_offset=U32,
)
PLACES = {"flags": U32, "main_mem_in_address": U32}
BODIES = {  # kpu_model_layer_type_t, and the argument of such a layer
    11: struct_of(**PLACES, mem_out_address=U32, count=U32, scale=F32, bias=F32),
    12: struct_of(**PLACES, main_mem_out_address=U32, count=U32, scale=F32, bias=F32),
    20: struct_of(**PLACES, main_mem_out_address=U32, width=U32, height=U32, channels=U32),
    10240: CONV,
    10241: struct_of(**PLACES, kpu_mem_out_address=U32, channels=U32),
    10242: struct_of(**PLACES, main_mem_out_address=U32, channels=U32),
    10243: struct_of(**PLACES, kpu_mem_out_address=U32, width=U32, height=U32, channels=U32),
}
NAMES = {
    11: "quantize",
    12: "dequantize",
    20: "tensorflow_flatten",
    10241: "k210_add_padding",
    10242: "k210_remove_padding",
}


@pytest.mark.parametrize("graph", [mobilenet_v1(128, 0.25, 20), random_cnn(3), random_cnn(5)])
def test_the_sdks_structs_find_every_layer(graph):
    made = compile_kmodel(graph, 3)
    data = made.data
    head = HEADER.from_buffer_copy(data)
    assert (head.version, head.flags, head.arch) == (3, 1, 0)
    assert head.layers_length == len(made.model.main.commands)
    at = c.sizeof(HEADER)
    outputs = [OUTPUT.from_buffer_copy(data, at + 8 * i) for i in range(head.output_count)]
    assert all(o.address + o.size <= head.main_mem_usage for o in outputs)
    at += 8 * head.output_count
    layers = [LAYER.from_buffer_copy(data, at + 8 * i) for i in range(head.layers_length)]
    at += 8 * head.layers_length
    for layer, command in zip(layers, made.model.main.commands, strict=True):
        body = BODIES[layer.type].from_buffer_copy(data, at)
        at += layer.body_size
        if layer.type == 10240:
            assert isinstance(command, Conv)
            assert body.act_offset % 256 == body.weights_offset % 128 == body.layer_offset % 8 == 0
            words = np.frombuffer(data, "<u8", 12, body.layer_offset)
            assert np.array_equal(words, command.words)
            assert data[body.weights_offset :].startswith(command.weights)
            assert data[body.bn_offset :].startswith(command.norm)
            assert data[body.act_offset :].startswith(command.curve)
            assert bool(body.flags & 1) == (command.output is not None)
            if command.output is not None:
                assert body.main_mem_out_address == command.output.start
                assert body.main_mem_out_address % 8 == 0
        elif layer.type == 10243:
            assert isinstance(command, Upload)
            assert (1, body.channels, body.height, body.width) == command.shape
            assert body.kpu_mem_out_address == command.line
        else:
            assert isinstance(command, CpuLayer)
            assert NAMES[layer.type] == command.kind
            assert body.main_mem_in_address == command.fields["main_in"]
