"""The bit fields of the BM1688 (CV186X)'s commands, in the notation of tables.py.

A key names all commands that share the bits. Commands have no numbers: they are counted.
"""

from __future__ import annotations

TIU = "cmd_short:1 op_code:16 cmd_id_dep:24 tsk_typ:4 tsk_eu_typ:5 "
# fmt: off
FORMS = {
    "CONV MM2 LIN AR PorD RQ&DQ SG SGL CW&BC":
        TIU + "rq:1 tsk_opd_num:2 pad_mode:2 res0_sign:1 _:3 pwr_step:4 intr_en:1 res_add:1 relu:1 "
        "left_tran:1 opd4_const:1 kernel_rotate:1 opd{0,1,2}_sign:1 "
        "{res0,opd0,opd1,opd2}_prec:3 opd{0,1,2}_const:1 {res0,opd0,opd1,opd2}_str:3 "
        "res_add_sign:1 _:25 sym_range:1 opd{3,5}_const:1 opd{0,1}_{x,y}_ins0:4 "
        "opd0_{up,dn,lf,rt}_pad:4 res_op_{x,y}_str:4 {res0,opd0,opd1}_{h,w}_shift:4 "
        "tsk_lane_num:64 {res0,opd0,opd1}_{n,c,h,w}:16 {res0,opd0,opd1,opd2}_{n,c}_str:16 "
        "{res0,opd0,opd1,opd2}_addr:32 {res0,opd0,opd1,opd2}_{h,w}_str:32 {res1,opd3}_addr:32",
    "sCONV":
        "cmd_short:1 sym_range:1 opd{4,5}_const:1 {relu,rq}:1 opd2_n_str:3 opd1_prec:3 "
        "op_code:5 cmd_id_dep:24 tsk_typ:4 tsk_eu_typ:5 opd{0,1,2}_sign:1 pad_mode:2 "
        "res0_sign:1 _:3 pwr_step:4 res_add:1 kernel_rotate:1 {res0,opd0}_prec:3 "
        "opd{1,2}_const:1 opd0_{up,dn,lf,rt}_pad:4 res_op_{x,y}_str:4 opd3_const:1 opd0_str:3 "
        "res0_addr:26 intr_en:1 opd{0,1}_{x,y}_ins0:4 opd0_n_str:16 res0_{n,c,h,w}:16 "
        "opd0_{c,h,w}:16 opd1_{h,w}:16 opd0_c_str:16 {opd0,opd1,opd2,res1,opd3}_addr:32 "
        "opd0_{h,w}_str:16",
    "MM":
        TIU + "rq:1 tsk_opd_num:2 _:2 res0_sign:1 _:3 pwr_step:4 intr_en:1 res_add:1 relu:1 "
        "left_tran:1 opd4_const:1 kernel_rotate:1 opd{0,1,2}_sign:1 "
        "{res0,opd0,opd1,opd2}_prec:3 opd{0,1,2}_const:1 {res0,opd0,opd1,opd2}_str:3 "
        "res_add_sign:1 _:25 sym_range:1 opd{3,5}_const:1 opd{0,1}_{x,y}_ins0:4 "
        "opd0_{up,dn,lf,rt}_pad:4 res_op_{x,y}_str:4 {res0,opd0,opd1}_{h,w}_shift:4 "
        "tsk_lane_num:64 {res0,opd0,opd1}_{n,c,h,w}:16 {res0,opd0,opd1,opd2}_{n,c}_str:16 "
        "{res0,opd0,opd1,opd2}_addr:32 {res0,opd0,opd1,opd2}_{h,w}_str:32 {res1,opd3}_addr:32",
    "sMM":
        "cmd_short:1 sym_range:1 _:2 {relu,rq}:1 _:11 cmd_id_dep:24 tsk_typ:4 tsk_eu_typ:5 "
        "res_add:1 left_tran:1 opd{0,2}_const:1 _:1 res0_sign:1 _:3 pwr_step:4 intr_en:1 "
        "opd{0,1,2}_sign:1 {res0,opd0}_prec:3 opd2_n_str:3 _:36 res0_{c,w}:16 opd0_{n,c,w}:16 "
        "_:16 opd1_w:16 {res0,opd0,opd1,opd2}_addr:32 _:32",
    "sMM2":
        "cmd_short:1 sym_range:1 opd{4,5}_const:1 {relu,rq}:1 _:3 opd1_prec:3 _:2 opd2_sign:1 "
        "op_code:2 cmd_id_dep:24 tsk_typ:4 tsk_eu_typ:5 opd{0,1}_sign:1 res0_prec:3 res0_sign:1 "
        "opd2_n_str:3 pwr_step:4 opd2_const:1 {res0,opd1}_{c,w}:16 opd0_prec:3 opd{0,1}_const:1 "
        "res_add:1 res0_addr:25 intr_en:1 opd{0,1,2}_addr:32",
    "CMP SFU VC":
        TIU + "rq:1 tsk_opd_num:2 pad_mode:2 _:4 pwr_step:4 intr_en:1 res_add:1 relu:1 left_tran:1 "
        "opd4_const:1 kernel_rotate:1 opd{0,1,2}_sign:1 {res0,opd0,opd1,opd2}_prec:3 "
        "opd{0,1,2}_const:1 {res0,opd0,opd1,opd2}_str:3 res_add_sign:1 _:25 sym_range:1 "
        "opd{3,5}_const:1 opd{0,1}_{x,y}_ins0:4 opd0_{up,dn,lf,rt}_pad:4 res_op_{x,y}_str:4 "
        "{res0,opd0,opd1}_{h,w}_shift:4 tsk_lane_num:64 {res0,opd0,opd1}_{n,c,h,w}:16 "
        "{res0,opd0,opd1,opd2}_{n,c}_str:16 {res0,opd0,opd1,opd2}_addr:32 "
        "{res0,opd0,opd1,opd2}_{h,w}_str:32 {res1,opd3}_addr:32",
    "sCMP":
        TIU + "opd{0,1,2,3}_const:1 _:5 pwr_step:4 intr_en:1 opd{0,2}_prec:3 opd{0,1}_str:3 _:51 "
        "opd0_sign:1 res0_{n,c,h,w}:16 {res0,res1,opd0,opd1,opd2,opd3}_addr:32",
    "sSFU":
        TIU + "_:9 pwr_step:4 intr_en:1 {res0,opd0}_prec:3 opd2_n_str:2 _:8 res0_{n,c,h,w}:16 "
        "opd1_n:16 {res0,opd0,opd1}_addr:32",
    "sVC":
        TIU + "opd{0,1}_sign:1 opd2_n_str:3 _:4 pwr_step:4 intr_en:1 {res0,opd0,opd1}_prec:3 "
        "res0_addr:32 _:23 opd0_addr:32 _:16 {res0,opd0}_{c,w}:16 opd1_w:16 opd{1,2}_addr:32 "
        "_:64",
    "sLIN":
        TIU + "opd{1,2}_const:1 res0_prec:3 _:4 pwr_step:4 intr_en:1 res0_{n,c,h,w}:16 "
        "{res0,opd0,opd1,opd2}_addr:32",
    "sAR":
        TIU + "opd{0,1,2}_const:1 tsk_opd_num:2 sym_range:1 _:3 pwr_step:4 intr_en:1 "
        "{res0,opd0,opd1,opd2}_prec:3 opd{0,1}_sign:1 {res0,opd0,opd1}_str:3 opd2_n_str:3 _:6 "
        "res0_{n,c,h,w}:16 {res0,opd0,opd1,opd2}_addr:32 {res0,opd0,opd1}_{n,c}_str:16 "
        "res0_{h,w}_str:20 opd0_h_str:20 opd2_sign:1 _:3 opd0_w_str:20 opd1_{h,w}_str:20 _:4",
    "sPorD":
        "cmd_short:1 sym_range:1 _:1 opd5_const:1 {relu,rq}:1 op_code:11 cmd_id_dep:24 "
        "tsk_typ:4 tsk_eu_typ:5 kernel_rotate:1 opd{0,1}_sign:1 pad_mode:2 res0_sign:1 _:3 "
        "pwr_step:4 opd{1,2,3}_const:1 {res0,opd0}_prec:3 opd{0,1}_{x,y}_ins0:4 "
        "opd0_{up,dn,lf,rt}_pad:4 res_op_{x,y}_str:4 opd2_n_str:3 _:11 opd2_sign:1 intr_en:1 "
        "res0_{n,c,h,w}:16 opd{0,1}_{h,w}:16 {res0,opd0,opd1,opd2,res1,opd3}_addr:32 _:64",
    "sRQ&sDQ":
        "cmd_short:1 sym_range:1 op_code:15 cmd_id_dep:24 tsk_typ:4 tsk_eu_typ:5 "
        "opd{0,2}_sign:1 res0_prec:3 _:4 pwr_step:4 opd1_const:1 opd0_prec:3 opd2_n_str:6 _:1 "
        "res0_addr:26 opd0_addr:27 intr_en:1 res0_{n,c,h,w}:16 opd{1,2}_addr:32",
    "sSG":
        TIU + "opd3_const:1 intr_en:1 opd0_str:3 _:4 pwr_step:4 opd2_const:1 res0_{n,c,h,w}:16 "
        "opd0_{h,w}:16 opd1_{c,w}:16 res0_prec:3 res0_addr:29 opd0_prec:3 opd0_addr:29 "
        "opd1_prec:3 opd1_addr:29 {opd2,res1,opd3}_addr:32",
    "sSGL":
        TIU + "_:3 opd3_const:1 intr_en:1 _:4 pwr_step:4 opd2_const:1 {res0,opd1}_prec:3 "
        "opd0_str:3 _:7 res0_{n,c,h,w}:16 opd0_h:16 {res0,opd0,opd1,opd2,res1}_addr:32 _:64",
    "sCW&sBC":
        TIU + "res0_prec:3 _:6 pwr_step:4 intr_en:1 res0_{n,c,h,w}:16 opd0_{c,w}:16 _:32 "
        "{res0,opd0}_addr:32",
    "LAR":
        "opd{0,1}_w_str:1 opd2_const:1 {res0,opd0,opd1}_prec:3 opd2_n_str:3 opd{0,1}_sign:1 "
        "start_tid:6 res0_{c,w}:8 _:2 tsk_typ:4 tsk_eu_typ:5 _:1 tsk_opd_num:2 _:6 pwr_step:4 "
        "_:1 {res0,opd0,opd1,opd2}_addr:16",
    "SYS":
        "_:17 cmd_id_dep:24 tsk_typ:4 tsk_eu_typ:5 reg_vld:2 reg_idx:7 pwr_step:4 intr_en:1 "
        "imm:64",
    "SYS_TR_ACC":
        "imm0:32 reg_idx0:8 intr_en:1 tsk_typ:4 tsk_eu_typ:3 reg_{idx1,idx2}:8 imm1:64",
    "DMA_tensor DMA_general DMA_cw_transpose":
        "intr_en:1 stride_enable:1 nchw_copy:1 cmd_short:1 _:28 cmd_type:4 "
        "cmd_special_function:3 fill_constant_en:1 src_data_format:3 _:21 cmd_id_dep:24 _:8 "
        "constant_value:32 {src,dst}_{nstride,cstride,hstride,wstride}:32 "
        "{src,dst}_{nsize,csize,hsize,wsize}:16 src_start_addr_l32:32 src_start_addr_h8:8 _:24 "
        "dst_start_addr_l32:32 dst_start_addr_h8:8 _:88 localmem_mask_{l32,h32}:32",
    "DMA_matrix":
        "intr_en:1 stride_enable:1 nchw_copy:1 cmd_short:1 _:28 cmd_type:4 "
        "cmd_special_function:3 fill_constant_en:1 src_data_format:3 _:21 cmd_id_dep:24 _:8 "
        "constant_value:32 {src,dst}_{nstride,cstride,hstride,wstride}:32 "
        "{src,dst}_{nsize,csize,hsize,wsize}:16 src_start_addr_h32:32 src_start_addr_l8:8 _:24 "
        "dst_start_addr_h32:32 dst_start_addr_l8:8 _:88 localmem_mask_{l32,h32}:32",
    "DMA_masked_select":
        "intr_en:1 stride_enable:1 nchw_copy:1 cmd_short:1 _:28 cmd_type:4 "
        "cmd_special_function:3 fill_constant_en:1 {src,mask}_data_format:3 _:18 cmd_id_dep:24 "
        "_:8 constant_value:32 {src,dst}_{nstride,cstride,hstride,wstride}:32 "
        "src_{nsize,csize}:16 src_hsize_src_wsize_high:16 src_wsize:16 dst_{nsize,csize}:16 "
        "dst_hsize_dst_wsize_high:16 dst_wsize:16 src_start_addr_l32:32 src_start_addr_h8:8 "
        "_:24 dst_start_addr_l32:32 dst_start_addr_h8:8 _:24 mask_start_addr_{l32,h8}:32 "
        "localmem_mask_{l32,h32}:32",
    "DMA_nonzero":
        "intr_en:1 stride_enable:1 nchw_copy:1 cmd_short:1 _:28 cmd_type:4 "
        "cmd_special_function:3 fill_constant_en:1 {src,index}_data_format:3 _:18 cmd_id_dep:24 "
        "_:8 constant_value:32 {src,dst}_{nstride,cstride,hstride,wstride}:32 "
        "{src,dst}_{nsize,csize,hsize,wsize}:16 src_start_addr_l32:32 src_start_addr_h8:8 _:24 "
        "dst_start_addr_l32:32 dst_start_addr_h8:8 _:88 localmem_mask_{l32,h32}:32",
    "sDMA_sys":
        "intr_en:1 stride_enable:1 nchw_copy:1 cmd_short:1 _:28 cmd_type:4 "
        "cmd_special_function:3 fill_constant_en:1 src_data_format:3 _:21 cmd_id_dep:24 index:8 "
        "constant_value:32",
    "DMA_gather DMA_scatter":
        "intr_en:1 stride_enable:1 nchw_copy:1 cmd_short:1 _:28 cmd_type:4 "
        "cmd_special_function:3 fill_constant_en:1 src_data_format:3 _:21 cmd_id_dep:24 _:8 "
        "constant_value:32 {src,dst,index}_{cstride,hstride}:32 _:16 src_csize:16 src_hsize:32 "
        "src_wsize:16 dst_csize:16 dst_hsize:32 dst_wsize:16 index_csize:16 index_hsize:32 "
        "src_start_addr_l32:32 src_start_addr_h8:8 _:24 dst_start_addr_l32:32 "
        "dst_start_addr_h8:8 _:24 index_start_addr_l32:32 index_start_addr_h8:8 _:24 "
        "localmem_mask_{l32,h32}:32",
    "DMA_reverse":
        "intr_en:1 stride_enable:1 nchw_copy:1 cmd_short:1 reversed:1 _:27 cmd_type:4 "
        "cmd_special_function:3 fill_constant_en:1 src_data_format:3 _:21 cmd_id_dep:24 _:8 "
        "constant_value:32 {src,dst}_{nstride,cstride,hstride,wstride}:32 "
        "{src,dst}_{nsize,csize,hsize,wsize}:16 src_start_addr_l32:32 src_start_addr_h8:8 _:24 "
        "dst_start_addr_l32:32 dst_start_addr_h8:8 _:88 localmem_mask_{l32,h32}:32",
    "DMA_compress":
        "intr_en:1 stride_enable:1 nchw_copy:1 cmd_short:1 _:28 cmd_type:4 "
        "cmd_special_function:3 fill_constant_en:1 src_data_format:3 _:21 cmd_id_dep:24 _:8 "
        "constant_value:32 src_{nstride,cstride,hstride}:32 "
        "racu_{nstride,lanecstride,hstride}:32 meta_{nstride,lanecstride}:32 "
        "src_{nsize,csize,hsize,wsize}:16 meta_hstride:32 {bias0,bias1}:8 is_sign:1 zguard:1 "
        "_:14 src_start_addr_l32:32 src_start_addr_h8:8 _:24 racu_start_addr_l32:32 "
        "racu_start_addr_h8:8 _:24 meta_start_addr_l32:32 meta_start_addr_h8:8 _:24 "
        "localmem_mask_{l32,h32}:32",
    "DMA_decompress":
        "intr_en:1 stride_enable:1 nchw_copy:1 cmd_short:1 _:28 cmd_type:4 "
        "cmd_special_function:3 fill_constant_en:1 src_data_format:3 _:21 cmd_id_dep:24 _:8 "
        "constant_value:32 racu_{nstride,lanecstride,hstride}:32 "
        "dst_{nstride,cstride,hstride}:32 meta_{nstride,lanecstride}:32 "
        "src_{nsize,csize,hsize,wsize}:16 meta_hstride:32 {bias0,bias1}:8 is_sign:1 zguard:1 "
        "_:14 racu_start_addr_l32:32 racu_start_addr_h8:8 _:24 dst_start_addr_l32:32 "
        "dst_start_addr_h8:8 _:24 meta_start_addr_l32:32 meta_start_addr_h8:8 _:24 "
        "localmem_mask_{l32,h32}:32",
}
# fmt: on
KINDS = {  # of commands that BM1684X does not have, or not so
    "PorD": (
        1,
        "0:depthwise 1:average 3:min 4:max 5:roi_depthwise 6:roi_average 7:roi_max 8:roi_min",
    ),
    "CW&BC": (
        5,
        "0:transpose_cw 1:transpose_wc 2:copy 3:broadcast 4:static_broadcast 5:static_distribute",
    ),
    "SYS_TR_ACC": (12, "0:write_imm"),
    "SYS": (15, "1:spb 2:swr 3:swr_local 4:swr_collect 8:send 9:wait 30:nop 31:end"),
    "DMA_masked_select": (2, "0:masked_select 1:masked_select_ncw"),
    "DMA_sys": (6, "0:end 1:nop 2:write 3:send 4:wait"),
    "DMA_reverse": (9, "0:reverse_w 1:reverse_h 2:reverse_c 3:reverse_n"),
    "DMA_compress": (10, "0:compress 1:compress_random"),
    "DMA_decompress": (11, "0:decompress 1:decompress_random"),
}
