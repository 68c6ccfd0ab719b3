"""The bit fields of the BM1684X's commands.

`name:bits` from bit 0 upwards; `_` is unused; `a{0,1}_{n,c}:16` stands for a0_n a0_c a1_n a1_c.
The names are those of Sophgo's register tables, so that other tools' listings can be compared.
"""

from __future__ import annotations

TIU = "cmd_short:1 cmd_id:20 cmd_id_dep:20 tsk_typ:4 tsk_eu_typ:5 "
END = "cmd_id_en:4 pwr_step:4 "
FULL = (
    TIU + "eu_half_en:1 tsk_opd_num:2 pad_mode:2 " + END + "intr_en:1 res_add:1 relu:1 left_tran:1 "
    "_:1 kernel_rotate:1 opd{0,1,2}_sign:1 {res0,opd0,opd1,opd2}_prec:3 opd{0,1,2}_const:1 "
    "{res0,opd0,opd1,opd2}_str:3 res_add_sign:1 _:26 opd3_const:1 _:1 opd{0,1}_{x,y}_ins0:4 "
    "opd0_{up,dn,lf,rt}_pad:4 res_op_{x,y}_str:4 {res0,opd0,opd1}_{h,w}_shift:4 tsk_lane_num:64 "
    "{res0,opd0,opd1}_{n,c,h,w}:16 {res0,opd0,opd1,opd2}_{n,c}_str:16 "
    "{res0,opd0,opd1,opd2}_addr:32 {res0,opd0,opd1,opd2}_{h,w}_str:32 {res1,opd3}_addr:32"
)
DMA = (
    "intr_en:1 stride_enable:1 nchw_copy:1 cmd_short:1 decompress_enable:1 cmd_id_en:4 cmd_id:20 "
    "_:3 cmd_type:4 cmd_special_function:3 fill_constant_en:1 src_data_format:3 "
)
PLAIN = DMA + "_:21 cmd_id_dep:20 _:12 constant_value:32 "
SIZES = "{src,dst}_{n,c,h,w}stride:32 {src,dst}_{n,c,h,w}size:16 "
ADDRESSES = "src_start_addr_l32:32 src_start_addr_h8:8 _:24 dst_start_addr_l32:32 "
MASK = "localmem_mask_{l,h}32:32"
TENSOR = PLAIN + SIZES + ADDRESSES + "dst_start_addr_h8:8 _:88 " + MASK
GATHER = (
    PLAIN + "{src,dst,index}_{c,h}stride:32 _:16 src_csize:16 src_hsize:32 src_wsize:16 "
    "dst_csize:16 dst_hsize:32 dst_wsize:16 index_csize:16 index_hsize:32 " + ADDRESSES + ""
    "dst_start_addr_h8:8 _:24 index_start_addr_l32:32 index_start_addr_h8:8 _:24 " + MASK
)

# name: bits; `FULL` is the long form of all commands of the TIU
TIU_SHORT = {
    "sAR": TIU + "opd{0,1,2}_const:1 tsk_opd_num:2 " + END + "intr_en:1 "
    "{res0,opd0,opd1,opd2}_prec:3 opd{0,1}_sign:1 {res0,opd0,opd1}_str:3 opd2_n_str:3 _:6 "
    "res0_{n,c,h,w}:16 {res0,opd0,opd1,opd2}_addr:32 {res0,opd0,opd1}_{n,c}_str:16 "
    "res0_{h,w}_str:20 opd0_h_str:20 opd2_sign:1 _:3 opd0_w_str:20 opd1_{h,w}_str:20 _:4",
    "sCMP": TIU + "opd{0,1,2,3}_const:1 _:1 " + END + "intr_en:1 opd{0,2}_prec:3 opd{0,1}_str:3 "
    "_:51 opd0_sign:1 res0_{n,c,h,w}:16 {res0,res1,opd0,opd1,opd2,opd3}_addr:32",
    "sCONV": TIU + "opd{0,1,2}_sign:1 pad_mode:2 " + END + "res_add:1 kernel_rotate:1 "
    "{res0,opd0}_prec:3 opd{1,2}_const:1 opd0_{up,dn,lf,rt}_pad:4 res_op_{x,y}_str:4 opd3_const:1 "
    "opd0_str:3 res0_addr:26 intr_en:1 opd{0,1}_{x,y}_ins0:4 opd0_n_str:16 res0_{n,c,h,w}:16 "
    "opd0_{c,h,w}:16 opd1_{h,w}:16 opd0_c_str:16 {opd0,opd1,opd2,res1,opd3}_addr:32 "
    "opd0_{h,w}_str:16",
    "sLIN": TIU + "opd{1,2}_const:1 res0_prec:3 " + END + "intr_en:1 res0_{n,c,h,w}:16 "
    "{res0,opd0,opd1,opd2}_addr:32",
    "sMM": TIU + "res_add:1 left_tran:1 opd0_const:1 opd2_const:1 _:1 " + END + "intr_en:1 "
    "opd{0,1,2}_sign:1 {res0,opd0}_prec:3 opd2_n_str:3 _:36 res0_{c,w}:16 opd0_{n,c,w}:16 _:16 "
    "opd1_w:16 {res0,opd0,opd1,opd2,opd3}_addr:32",
    "sMM2": TIU + "opd{0,1}_sign:1 res0_prec:3 " + END + "opd2_const:1 {res0,opd1}_{c,w}:16 "
    "opd0_prec:3 opd{0,1}_const:1 res_add:1 res0_addr:25 intr_en:1 opd{0,1,2}_addr:32",
    "sPorD": TIU + "kernel_rotate:1 opd{0,1}_sign:1 pad_mode:2 " + END + "opd{1,2,3}_const:1 "
    "{res0,opd0}_prec:3 opd{0,1}_{x,y}_ins0:4 opd0_{up,dn,lf,rt}_pad:4 res_op_{x,y}_str:4 "
    "opd2_n_str:3 _:11 opd2_sign:1 intr_en:1 res0_{n,c,h,w}:16 opd{0,1}_{h,w}:16 "
    "{res0,opd0,opd1,opd2,res1,opd3}_addr:32 _:64",
    "sRQ&sDQ": TIU + "opd{0,2}_sign:1 res0_prec:3 " + END + "opd1_const:1 opd0_prec:3 "
    "opd2_n_str:6 {res0,opd0}_addr:27 intr_en:1 res0_{n,c,h,w}:16 opd{1,2}_addr:32",
    "sSEG": TIU + "_:2 res0_prec:3 " + END + "intr_en:1 res0_{c,w}:16 res0_addr:32",
    "sSFU": TIU + "_:5 " + END + "intr_en:1 {res0,opd0}_prec:3 opd2_n_str:2 _:8 "
    "res0_{n,c,h,w}:16 opd1_n:16 {res0,opd0,opd1}_addr:32",
    "sSG": TIU + "opd3_const:1 intr_en:1 opd0_str:3 " + END + "opd2_const:1 res0_{n,c,h,w}:16 "
    "opd0_{h,w}:16 opd1_{c,w}:16 res0_prec:3 res0_addr:29 opd0_prec:3 opd0_addr:29 opd1_prec:3 "
    "opd1_addr:29 {opd2,res1,opd3}_addr:32",
    "sSGL": TIU + "_:3 opd3_const:1 intr_en:1 " + END + "opd2_const:1 {res0,opd1}_prec:3 "
    "opd0_str:3 _:7 res0_{n,c,h,w}:16 opd0_h:16 {res0,opd0,opd1,opd2,res1}_addr:32 _:64",
    "sTRANS&sBC": TIU + "res0_prec:3 _:2 " + END + "intr_en:1 res0_{n,c,h,w}:16 opd0_{c,w}:16 "
    "_:32 {res0,opd0}_addr:32",
    "sVC": TIU + "opd{0,1}_sign:1 opd2_n_str:3 " + END + "intr_en:1 {res0,opd0,opd1}_prec:3 "
    "res0_addr:32 _:23 opd0_addr:32 _:16 res0_{c,w}:16 opd0_{c,w}:16 opd1_w:16 opd{1,2}_addr:32 "
    "_:64",
    "LAR": "opd{0,1}_w_str:1 opd2_const:1 {res0,opd0,opd1}_prec:3 opd2_n_str:3 opd{0,1}_sign:1 "
    "start_tid:6 res0_{c,w}:8 _:2 tsk_typ:4 tsk_eu_typ:5 _:1 tsk_opd_num:2 _:6 pwr_step:4 _:1 "
    "{res0,opd0,opd1,opd2}_addr:16",
    "SYSID": "_:1 cmd_id:20 cmd_id_dep:20 tsk_typ:4 tsk_eu_typ:5 _:5 " + END + "intr_en:1 "
    "cmd_id_eng{1,2,3}:20 _:4",
}
DMA_FORMS = {
    "DMA_tensor": TENSOR,
    "DMA_matrix": TENSOR,
    "DMA_masked_select": DMA + "mask_data_format:3 _:18 cmd_id_dep:20 _:12 constant_value:32 "
    "" + SIZES + ADDRESSES + "dst_start_addr_h8:8 _:24 mask_start_addr_{l32,h8}:32 " + MASK,
    "DMA_general": TENSOR,  # src_cstride: the number of elements
    "DMA_cw_transpose": TENSOR,
    "DMA_nonzero": DMA + "index_data_format:3 _:18 cmd_id_dep:20 _:12 constant_value:32 "
    "" + SIZES + ADDRESSES + "dst_start_addr_h8:8 _:88 " + MASK,  # dst_nstride: the first index
    "DMA_gather": GATHER,
    "DMA_scatter": GATHER,
    "sDMA_matrix": DMA + "_:21 cmd_id_dep:20 _:12 plain_hstride:32 lanes_{n,c}stride:32 "
    "plain_{h,w}size:16 lanes_{n,c,w}size:16 _:16 " + ADDRESSES + "dst_start_addr_h8:8 _:56 "
    "" + MASK,
    "sDMA_masked_select": DMA + "mask_data_format:3 _:18 cmd_id_dep:20 _:12 "
    "{src,dst}_{n,c,h,w}size:16 " + ADDRESSES + "dst_start_addr_h8:8 _:24 "
    "mask_start_addr_{l32,h8}:32 _:96",
    "sDMA_general": PLAIN + "src_cstride:32 dst_csize:16 _:16 " + ADDRESSES + ""
    "dst_start_addr_h8:8 _:24 " + MASK,
    "sDMA_nonzero": DMA + "index_data_format:3 _:18 cmd_id_dep:20 _:12 dst_nstride:32 "
    "src_{n,c,h,w}size:16 " + ADDRESSES + "dst_start_addr_h8:8 _:88",
    "sDMA_sys": PLAIN,
}

# short form, type, `kind:name` for each kind of the command's own
ARITHMETIC = (
    "0:mul 1:not 2:add 3:sub 4:max 5:min 6:shift 7:and 8:or 9:xor 10:select_gt 11:select_eq 12:div "
    "13:select_lt 14:cast 15:add_sat 16:sub_sat 18:mac 19:copy 20:mul_sat 21:shift_arith "
    "22:rotate 23:mul_high 24:eu_index 25:lane_index 26:abs 27:sub_abs 28:copy_rows 29:first_one "
    "30:first_zero"
)
TIU_KINDS = {
    "CONV": (0, "0:conv 1:conv_rq 2:conv_rq_relu"),
    "PorD": (
        1,
        "0:depthwise 1:average 2:depthwise_relu 4:max 5:roi_depthwise 6:roi_average 7:roi_max",
    ),
    "MM": (2, "1:matmul 2:matmul_rq 3:matmul_rq_relu"),
    "MM2": (2, "4:matmul_nn 5:matmul_nt 6:matmul_tt"),
    "AR": (3, ARITHMETIC),
    "RQ&DQ": (4, "0:rq0 1:rq1 2:rq2 3:dq0 4:dq1 5:dq2"),
    "TRANS&BC": (
        5,
        "0:transpose_cw 1:transpose_wc 2:copy 3:broadcast 4:static_broadcast 5:static_distribute",
    ),
    "SG": (
        6,
        "0:plane_gather_1 1:plane_gather_2 2:plane_gather_box 3:plane_scatter_1 "
        "4:plane_scatter_2 5:gather 6:scatter 7:gather_4 8:mask_select 9:nonzero "
        "10:scatter_index 11:plane_gather_w 12:plane_scatter_w 13:gather_hazard "
        "14:scatter_hazard 15:mask_select_hazard 16:nonzero_hazard",
    ),
    "SGL": (6, "17:gather_line 18:scatter_line 19:mask_select_line"),
    "SEG": (8, ""),
    "SFU": (9, "12:taylor_4x 13:taylor 15:normalize 17:rsqrt"),
    "LIN": (10, "1:mac 20:square_sum 21:square_diff"),
    "CMP": (13, "22:gt_select_gt 23:select_gt 24:select_eq 25:lt_select_lt 26:select_lt"),
    "VC": (
        14,
        "0:mul 2:add 3:sub 4:max 5:min 7:and 8:or 9:xor 10:select_gt 11:select_eq 12:div "
        "13:select_lt 15:add_sat 16:sub_sat 20:mul_sat 23:mul_high",
    ),
    "LAR": (7, ARITHMETIC),
    "SYSID": (
        15,
        "0:interrupt_barrier 1:spb 2:swr 3:swr_local 4:swr_collect 5:data_barrier 30:nop 31:end",
    ),
}
DMA_KINDS = {
    "DMA_tensor": (
        0,
        "0:copy 1:transpose_nc 2:collect 3:broadcast 4:distribute 5:copy_4_banks "
        "6:broadcast_4_banks",
    ),
    "DMA_matrix": (1, "0:matrix 1:matrix_transpose"),
    "DMA_masked_select": (2, "0:masked_select"),
    "DMA_general": (3, "0:general 1:general_broadcast"),
    "DMA_cw_transpose": (4, "0:transpose_cw"),
    "DMA_nonzero": (5, "0:nonzero"),
    "DMA_sys": (6, "0:end 1:nop"),
    "DMA_gather": (7, "0:gather"),
    "DMA_scatter": (8, "0:scatter"),
}
