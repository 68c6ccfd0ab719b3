"""The command descriptors of CV181x and CV180x as tables of bit fields.

A field is `name:bits` or `name:bits=value after reset`. Fields follow each other from bit 0 of the
first word. The names are those of Sophgo's register tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array

TIU_TEXT = """
cmd_en:1 cmd_end:1 cmd_id_en:1 cmd_keep:1 cmd_intr_en:1 tsk_typ:4 tsk_eu_typ:5 tsk_opd_num:2=3
opt_res_shift:6=10 opt_left_shift:5=2 opt_shift_typ:1=1 opt_rshift_typ:1=1 dummy1:1 opd_typ:1
opt_chl_quan:1 cmd_id_tpu:16 cmd_id_gdma:16 quan_m:32
opt_res0_sign:1 opt_opd0_sign:1 opt_opd1_sign:1=1 opt_opd2_sign:1=1
opt_res0_seg:2=1 opt_opd0_seg:2=1 opt_opd1_seg:2=1 opt_opd2_seg:1
ps32_md:2 double_conv:1 opt_left_tran:1 fp_round_typ:1 opt_relu_typ:2 opt_relu_value:8
cmd_pre_exe_typ:1 opt_res_add:1 rsvd0:4
conv_opd0_x_ins0:4 conv_opd0_y_ins0:4 conv_opd0_x_ins0_last:4 conv_opd0_y_ins0_last:4
conv_opd1_x_ins0:4 conv_opd1_y_ins0:4 dummy0:8 opd0_ins_val:16
conv_opd0_up_pad:4 conv_opd0_dn_pad:4 conv_opd0_lf_pad:4 conv_opd0_rt_pad:4
res0_n:12=1 res0_c:12=1 res0_h:12=1 res0_w:12=16 conv_op_x_str:5=1 conv_op_y_str:5=1
cmd_pre_exe:2 rsvd1:4=1
res0_addr:24 opd0_addr:24 opd1_addr:16 opd2_addr:16
opt_opd0_const:1 opt_opd1_const:1 opt_opd2_const:1 short_nchwstr_same:1
short_res0_str:2 short_opd0_str:2 short_opd1_str:2 short_opd2_str:2 dummy2:4
opd0_n:12=1 opd0_c:12=1 dummy3:4 rsvd2:4=2
opd0_h:12=1 opd0_w:12=16 opd1_n:12=1 opd1_c:12=1 opd1_h:12=1 opd1_w:12=16
opd2_n:12=1 opd2_c:12=1 opd2_h:12=1 opd2_w:12=16 dummy4:4 rsvd3:4=3 layer_info:16
res0_n_str:16=16 res0_c_str:16=16 res0_h_str:16 res0_w_str:16=1 res0_b_str:16=16
opd0_n_str:16=16 dummy5:12 rsvd4:4=4
opd0_c_str:16=16 opd0_h_str:16 opd0_w_str:16=1 opd0_b_str:16=16
opd1_n_str:16=16 opd1_c_str:16=16 opd1_h_str:16 dummy6:12 rsvd5:4=5
opd1_w_str:16=1 opd1_b_str:16=16
opd2_n_str:16=16 opd2_c_str:16=16 opd2_h_str:16 opd2_w_str:16=1 opd2_b_str:16=16
dummy7:12 rsvd6:4=6
"""
TDMA_TEXT = """
vld:1 compress_en:1 eod:1 intp_en:1 bar_en:1 check_bf16_value:1 trans_dir:2 rsv00:2 trans_fmt:1
transpose_md:2 rsv01:1 intra_cmd_paral:1 outstanding_en:1 cmd_id:16
spec_func:3 dst_fmt:2=1 src_fmt:2=1 cmprs_fmt:1 sys_dtype:1 rsv2_1:4 int8_sign:1
compress_zero_guard:1 int8_rnd_mode:1 wait_id_tpu:16
wait_id_other_tdma:16 wait_id_sdma:16 const_val:16
src_base_reg_sel:3 mv_lut_idx:1 dst_base_reg_sel:3 mv_lut_base:1 rsv4_5:8
dst_h_stride:16=1 dst_c_stride_low:16=1 dst_n_stride:32=1
src_h_stride:16=1 src_c_stride_low:16=1 src_n_stride:32=1
dst_c:16=1 src_c:16=1 dst_w:16=1 dst_h:16=1 src_w:16=1 src_h:16=1
dst_base_addr_low:32 src_base_addr_low:32 src_n:16=1 dst_base_addr_high:8 src_base_addr_high:8
src_c_stride_high:16 dst_c_stride_high:16 compress_bias0:8 compress_bias1:8 layer_ID:16
"""


@dataclass(frozen=True, slots=True)
class Field:
    """Some bits of a descriptor."""

    name: str
    low: int  # the lowest bit
    bits: int
    reset: int

    @property
    def largest(self) -> int:
        """The largest value."""
        return (1 << self.bits) - 1


@dataclass(frozen=True)
class Table:
    """The fields of one kind of descriptor, in order."""

    name: str
    size: int  # in bytes
    engine: int  # as in the header of a command
    fields: tuple[Field, ...]
    number: str  # the field that holds the command's number
    depends: str  # the field that holds the number of the other engine's command to wait for
    layer: str

    @cached_property
    def by_name(self) -> dict[str, Field]:
        """The fields by their names."""
        return {f.name: f for f in self.fields}

    @cached_property
    def resets(self) -> dict[str, int]:
        """The value of each field after a reset."""
        return {f.name: f.reset for f in self.fields}

    def pack(self, values: Mapping[str, int]) -> bytes:
        """The descriptor of some values; the others have their value after a reset."""
        known = self.by_name
        bits = self._reset_bits
        for name, value in values.items():
            field = known.get(name)
            if field is None:
                raise BadInput(f"cv18xx: a {self.name} command has no field '{name}'")
            if not 0 <= value <= field.largest:
                raise BadInput(
                    f"cv18xx: field '{name}' of a {self.name} command is {value}; "
                    f"it has {field.bits} bits, 0 to {field.largest}"
                )
            bits += (int(value) - field.reset) << field.low
        return bits.to_bytes(self.size, "little")

    def unpack(self, data: bytes) -> dict[str, int]:
        """The value of every field of a descriptor."""
        bits = int.from_bytes(data, "little")
        return {f.name: bits >> f.low & f.largest for f in self.fields}

    def unpack_all(self, rows: Array) -> Array:
        """The fields of many descriptors: u8 [descriptors, bytes] to u32 [descriptors, fields]."""
        wide = np.zeros((len(rows), self.size + 8), np.uint8)
        wide[:, : self.size] = rows
        found = np.empty((len(rows), len(self.fields)), np.uint32)
        for i, field in enumerate(self.fields):
            first = field.low // 8
            words = np.ascontiguousarray(wide[:, first : first + 8]).view("<u8")[:, 0]
            found[:, i] = words >> np.uint64(field.low % 8) & np.uint64(field.largest)
        return found

    @cached_property
    def _reset_bits(self) -> int:
        return sum(f.reset << f.low for f in self.fields)


def _table(text: str) -> tuple[Field, ...]:
    found, low = [], 0
    for part in text.split():
        name, _, rest = part.partition(":")
        bits, _, reset = rest.partition("=")
        found.append(Field(name, low, int(bits), int(reset or 0)))
        low += int(bits)
    return tuple(found)


TIU = Table("tiu", 112, 0, _table(TIU_TEXT), "cmd_id_tpu", "cmd_id_gdma", "layer_info")
TDMA = Table("tdma", 64, 2, _table(TDMA_TEXT), "cmd_id", "wait_id_tpu", "layer_ID")
COMMANDS = {"tiu": TIU, "tdma": TDMA}
