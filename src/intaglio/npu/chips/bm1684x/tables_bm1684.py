"""The bit fields of the BM1684's commands, in the notation of tables.py.

All commands of the TIU share one form of 128 bytes, those of the DMA engine another. Names are
those of the BM1684X's commands where a field means the same. Streams have no end commands: the file
says how many commands there are.
"""

from __future__ import annotations

SIZE = 1024  # bits of every command
_TIU = (
    "cmd_en:1 cmd_end:1 cmd_id_en:1 cmd_id:16 cmd_id_dep:16 cmd_keep:1 intr_en:1 tsk_typ:4 "
    "tsk_eu_typ:5 tsk_opd_num:2 right_shift:5 left_shift:5 shift_typ:1 res_add:1 relu:1 "
    "left_tran:1 winograd:1 kernel_rotate:1 opd{0,1,2}_sign:1 {res0,opd0,opd1,opd2}_prec:3 "
    "opd{0,1,2}_const:1 {res0,opd0,opd1,opd2}_str:3 opd{0,1}_{x,y}_ins0:4 "
    "opd0_{up,dn,lf,rt}_pad:4 res_op_{x,y}_str:4 tsk_lane_num:64 res0_n:16 res0_c:12 "
    "res0_{h,w}:16 opd0_n:16 opd0_c:12 opd0_{h,w}:16 opd1_{n,c}:12 opd1_{h,w}:16 "
    "{res0,opd0,opd1}_{h,w}_shift:4 {res0,opd0,opd1,opd2}_{n,c}_str:19 res_add_sign:1 "
    "opd{0,1}_neq1:1 opd3_const:1 _:22 {res0,opd0,opd1,opd2}_addr:32 "
    "{res0,opd0,opd1,opd2}_{h,w}_str:32 {res1,opd3}_addr:32"
)
_DMA = (
    "pio_enable:1 des_type:1 chain_end:1 intr_en:1 barrier_enable:1 stride_enable:1 direction:2 "
    "acc_write_enable:1 common_mode:1 prefetch_disable:1 hold_des_value:1 _:4 cmd_id:16 "
    "cmd_special_function:3 dst_data_format:3 chw_copy:1 sys_mem_type:1 src_data_format:3 "
    "lrn_shift_num:4 lrn_shift_dir:1 cmd_id_dep:16 cmd_id_{cdma,gde}:16 constant_value:32 "
    "{src,dst}_{n,c,h,w}stride:32 {src,dst}_{n,c,h,w}size:16 {src,dst}_start_addr_l32:32 "
    "{src,dst}_start_addr_h8:8 src_hshift:24 src_wshift:8 dst_{h,w}shift:8 "
    "localmem_mask_{l,h}32:32 single_step:1 debug_mode:1 _:318"
)
ARITHMETIC = (
    "0:mul 1:mac 2:add 3:sub 4:max 5:min 6:shift 7:and 8:or 9:xor 10:select_gt 11:select_eq "
    "12:divide 13:taylor 14:f32_to_int 15:int_normalize 16:f32_normalize 17:rsqrt 18:add_tree "
    "19:copy 20:square_sum 21:square_diff 22:compare 23:select 24:compare_select"
)
KINDS = {
    "CONV": (0, "0:conv 1:conv"),
    "PorD": (1, "1:depthwise 4:max"),  # the mean is a depthwise convolution by a constant
    "MM": (2, "0:mul 1:mac"),
    "AR": (3, ARITHMETIC),
    "MM2": (4, "18:mm2"),
    "CC": (5, ARITHMETIC),
    "LUT": (6, "0:lookup 19:lookup"),
    "SUM": (7, "18:sum"),
    "SCALAR": (8, ARITHMETIC),
    "SFU": (9, ARITHMETIC),
    "LIN": (10, "1:mac 20:square_sum 21:square_diff"),
    "LMA": (11, "19:arrange"),
    "DECOMPRESS": (12, "19:decompress"),
    "CMP": (13, "22:compare 23:select 24:compare_select"),
    "VC": (14, ARITHMETIC),
    "DMA_tensor": (
        0,
        "0:copy 1:transpose_nc 2:lrn_shift 3:format 4:constant 5:transpose_cw 6:winograd 7:filter",
    ),
}
FORMS = {" ".join(k for k in KINDS if k != "DMA_tensor"): _TIU, "DMA_tensor": _DMA}
# in every command of Sophgo's compiler
DEFAULTS = {
    "cmd_en": 1,
    "cmd_id_en": 1,
    "pio_enable": 1,
    "barrier_enable": 1,
    "stride_enable": 1,
    "prefetch_disable": 1,
    "lrn_shift_num": 1,
}
