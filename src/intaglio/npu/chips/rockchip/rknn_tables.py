"""The tables in a file of Rockchip's compiler, as schemas of flatbuffers.

Nothing of this is published; the fields were found by comparing files. `_4` is one whose meaning
is unknown.
"""

from intaglio.npu.chips.flatbuffer import Schema

FULL = Schema(
    {
        "Model": "version:u32 generator:str graphs:[Graph] attributes:str _4:u32 _5:u32 _6:u32 "
        "compiler:str target:str framework:str _10:u8 _11:u32 inputs:str outputs:str _14:u32 "
        "_15:u32 shapes:str _17:u32 _18:u32 memory:Memory blobs:[Blob]",
        "Memory": "weights:u64 internal:u64",
        "Blob": "data:bytes",
        "Graph": "tensors:[Tensor] operators:[Operator] inputs:[u32] outputs:[u32] _4:u32 _5:u32 "
        "_6:u32 relocations:[Relocation]",
        "Tensor": "dtype:u8 layout:u8 kind:u8 stored:[u32] shape:[u32] name:str method:str "
        "type:str minimum:[f32] maximum:[f32] scale:[f32] zero:[i32] bytes:u32 offset:u32 _14:u32 "
        "_15:u32 _16:u32 _17:u32 blob:u32",
        "Operator": "_0:u8 kind:str name:str device:u8 inputs:[u32] outputs:[u32] _6:u8 "
        "details:u8 window:Window?details=1 attributes:bytes tasks:[u32]",
        "Window": "auto_pad:str dilations:[u32] _2:u32 kernel:[u32] pads:[u32] strides:[u32]",
        "Relocation": "tensor:str places:[Place] cores:[u32]",
    },
    {"Place": "offset:u32 word:u32"},
)

# In files for RV110x: addresses are in the commands already, and weights beside them.
COMPACT = Schema(
    {
        "Model": "version:u32 generator:str graphs:[Graph] attributes:str _4:u32 compiler:str "
        "target:str framework:str",
        "Graph": "tensors:[Tensor] operators:[Operator] inputs:[u32] outputs:[u32]",
        "Tensor": "dtype:u8 layout:u8 kind:u8 stored:[u32] shape:[u32] name:str scale:[f32] "
        "zero:[i32] bytes:u32 offset:u32",
        "Operator": "_0:u8 kind:str name:str device:u8 inputs:[u32] outputs:[u32] _6:u8 _7:u8 "
        "attributes:bytes tasks:[u32]",
    },
    {},
)
