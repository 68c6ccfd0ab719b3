"""The bit fields of the BM1690 (SG2260)'s commands, in the notation of tables.py.

A key names all commands that share the bits. Commands have no numbers: they are counted.
"""

from __future__ import annotations

TIU = "cmd_short:1 op_code:16 cmd_id_dep:24 tsk_typ:4 tsk_eu_typ:5 "
# fmt: off
FORMS = {
    "CONV CONV_BW MM2 LIN AR PorD RQ&DQ SG SGL CW&BC RAND":
        "cmd_short:1 op_code:16 cmd_id_dep:23 dbg_mode:1 tsk_typ:4 tsk_eu_typ:5 rq:1 "
        "tsk_opd_num:2 pad_mode:2 res0_sign:1 _:3 pwr_step:4 intr_en:1 res_add:1 relu:1 "
        "left_tran:1 opd4_const:1 kernel_rotate:1 opd{0,1,2}_sign:1 "
        "{res0,opd0,opd1,opd2}_prec:3 opd{0,1,2}_const:1 {res0,opd0,opd1,opd2}_str:3 "
        "res_add_sign:1 _:25 sym_range:1 opd{3,5}_const:1 opd{0,1}_{x,y}_ins0:4 "
        "opd0_{up,dn,lf,rt}_pad:4 res_op_{x,y}_str:4 {res0,opd0,opd1}_{h,w}_shift:4 "
        "tsk_lane_num:64 {res0,opd0,opd1}_{n,c,h,w}:16 {res0,opd0,opd1,opd2}_{n,c}_str:16 "
        "{res0,opd0,opd1,opd2}_addr:32 {res0,opd0,opd1,opd2}_{h,w}_str:32 {res1,opd3}_addr:32",
    "sCONV":
        "cmd_short:1 sym_range:1 opd{4,5}_const:1 {relu,rq}:1 opd2_n_str:3 opd1_prec:3 "
        "op_code:5 cmd_id_dep:23 dbg_mode:1 tsk_typ:4 tsk_eu_typ:5 opd{0,1,2}_sign:1 pad_mode:2 "
        "res0_sign:1 opd2_prec:3 pwr_step:4 res_add:1 kernel_rotate:1 {res0,opd0}_prec:3 "
        "opd{1,2}_const:1 opd0_{up,dn,lf,rt}_pad:4 res_op_{x,y}_str:4 opd3_const:1 opd0_str:3 "
        "res0_addr:26 intr_en:1 opd{0,1}_{x,y}_ins0:4 opd0_n_str:16 res0_{n,c,h,w}:16 "
        "opd0_{c,h,w}:16 opd1_{h,w}:16 opd0_c_str:16 {opd0,opd1,opd2,res1,opd3}_addr:32 "
        "opd0_{h,w}_str:16",
    "sCONV_BW":
        "cmd_short:1 sym_range:1 opd{4,5}_const:1 {relu,rq}:1 opd2_n_str:3 opd1_prec:3 "
        "op_code:5 cmd_id_dep:23 dbg_mode:1 tsk_typ:4 tsk_eu_typ:5 opd{0,1,2}_sign:1 pad_mode:2 "
        "res0_sign:1 opd2_prec:3 pwr_step:4 res_add:1 kernel_rotate:1 {res0,opd0}_prec:3 "
        "opd{1,2}_const:1 opd0_{up,dn,lf,rt}_pad:4 res_op_{x,y}_str:4 opd3_const:1 opd0_str:3 "
        "res0_addr:26 intr_en:1 opd{0,1}_{x,y}_ins0:4 opd0_n_str:16 opd0_n:16 "
        "{res0,opd0}_{c,h,w}:16 opd1_{h,w}:16 opd0_c_str:16 {opd0,opd1,opd2,res1,opd3}_addr:32 "
        "opd0_{h,w}_str:16",
    "MM":
        "cmd_short:1 op_code:16 cmd_id_dep:23 dbg_mode:1 tsk_typ:4 tsk_eu_typ:5 rq:1 "
        "tsk_opd_num:2 _:2 res0_sign:1 _:3 pwr_step:4 intr_en:1 res_add:1 relu:1 left_tran:1 "
        "opd4_const:1 kernel_rotate:1 opd{0,1,2}_sign:1 {res0,opd0,opd1,opd2}_prec:3 "
        "opd{0,1,2}_const:1 {res0,opd0,opd1,opd2}_str:3 res_add_sign:1 _:25 sym_range:1 "
        "opd{3,5}_const:1 opd{0,1}_{x,y}_ins0:4 opd0_{up,dn,lf,rt}_pad:4 res_op_{x,y}_str:4 "
        "{res0,opd0,opd1}_{h,w}_shift:4 tsk_lane_num:64 {res0,opd0,opd1}_{n,c,h,w}:16 "
        "{res0,opd0,opd1,opd2}_{n,c}_str:16 {res0,opd0,opd1,opd2}_addr:32 "
        "{res0,opd0,opd1,opd2}_{h,w}_str:32 {res1,opd3}_addr:32",
    "sMM":
        "cmd_short:1 sym_range:1 _:2 {relu,rq}:1 _:11 cmd_id_dep:23 dbg_mode:1 tsk_typ:4 "
        "tsk_eu_typ:5 res_add:1 left_tran:1 opd{0,2}_const:1 _:1 res0_sign:1 _:3 pwr_step:4 "
        "intr_en:1 opd{0,1,2}_sign:1 {res0,opd0}_prec:3 opd2_n_str:3 _:36 res0_{c,w}:16 "
        "opd0_{n,c,w}:16 _:16 opd1_w:16 {res0,opd0,opd1,opd2}_addr:32 _:32",
    "sMM2":
        "cmd_short:1 sym_range:1 opd{4,5}_const:1 {relu,rq}:1 opd{2,1}_prec:3 _:2 opd2_sign:1 "
        "op_code:2 cmd_id_dep:23 dbg_mode:1 tsk_typ:4 tsk_eu_typ:5 opd{0,1}_sign:1 res0_prec:3 "
        "res0_sign:1 opd2_n_str:3 pwr_step:4 opd2_const:1 {res0,opd1}_{c,w}:16 opd0_prec:3 "
        "opd{0,1}_const:1 res_add:1 res0_addr:25 intr_en:1 opd{0,1,2}_addr:32",
    "CMP SFU VC":
        "cmd_short:1 op_code:16 cmd_id_dep:23 dbg_mode:1 tsk_typ:4 tsk_eu_typ:5 rq:1 "
        "tsk_opd_num:2 pad_mode:2 _:4 pwr_step:4 intr_en:1 res_add:1 relu:1 left_tran:1 "
        "opd4_const:1 kernel_rotate:1 opd{0,1,2}_sign:1 {res0,opd0,opd1,opd2}_prec:3 "
        "opd{0,1,2}_const:1 {res0,opd0,opd1,opd2}_str:3 res_add_sign:1 _:25 sym_range:1 "
        "opd{3,5}_const:1 opd{0,1}_{x,y}_ins0:4 opd0_{up,dn,lf,rt}_pad:4 res_op_{x,y}_str:4 "
        "{res0,opd0,opd1}_{h,w}_shift:4 tsk_lane_num:64 {res0,opd0,opd1}_{n,c,h,w}:16 "
        "{res0,opd0,opd1,opd2}_{n,c}_str:16 {res0,opd0,opd1,opd2}_addr:32 "
        "{res0,opd0,opd1,opd2}_{h,w}_str:32 {res1,opd3}_addr:32",
    "sCMP":
        "cmd_short:1 op_code:16 cmd_id_dep:23 dbg_mode:1 tsk_typ:4 tsk_eu_typ:5 "
        "opd{0,1,2,3}_const:1 _:5 pwr_step:4 intr_en:1 opd{0,2}_prec:3 opd{0,1}_str:3 _:50 "
        "opd{2,0}_sign:1 res0_{n,c,h,w}:16 {res0,res1,opd0,opd1,opd2,opd3}_addr:32",
    "sSFU":
        "cmd_short:1 op_code:16 cmd_id_dep:23 dbg_mode:1 tsk_typ:4 tsk_eu_typ:5 _:9 pwr_step:4 "
        "intr_en:1 {res0,opd0}_prec:3 opd2_n_str:2 _:8 res0_{n,c,h,w}:16 opd1_n:16 "
        "{res0,opd0,opd1}_addr:32",
    "sVC":
        "cmd_short:1 op_code:16 cmd_id_dep:23 dbg_mode:1 tsk_typ:4 tsk_eu_typ:5 opd{0,1}_sign:1 "
        "opd2_n_str:3 res_sign:1 _:3 pwr_step:4 intr_en:1 {res0,opd0,opd1}_prec:3 res0_addr:32 "
        "_:23 opd0_addr:32 _:16 {res0,opd0}_{c,w}:16 opd1_w:16 opd{1,2}_addr:32 _:64",
    "sLIN":
        "cmd_short:1 op_code:16 cmd_id_dep:23 dbg_mode:1 tsk_typ:4 tsk_eu_typ:5 "
        "opd{1,2}_const:1 res0_prec:3 rsv0:29 opd0_prec:3 {opd0,opd1,opd2,res0}_sign:1 "
        "pwr_step:4 intr_en:1 res0_{n,c,h,w}:16 {res0,opd0,opd1,opd2}_addr:32",
    "sAR":
        "cmd_short:1 op_code:16 cmd_id_dep:23 dbg_mode:1 tsk_typ:4 tsk_eu_typ:5 "
        "opd{0,1,2}_const:1 tsk_opd_num:2 sym_range:1 res0_sign:1 _:2 pwr_step:4 intr_en:1 "
        "{res0,opd0,opd1,opd2}_prec:3 opd{0,1}_sign:1 {res0,opd0,opd1}_str:3 opd2_n_str:3 _:6 "
        "res0_{n,c,h,w}:16 {res0,opd0,opd1,opd2}_addr:32 {res0,opd0,opd1}_{n,c}_str:16 "
        "res0_{h,w}_str:20 opd0_h_str:20 opd2_sign:1 _:3 opd0_w_str:20 opd1_{h,w}_str:20 _:4",
    "sPorD":
        "cmd_short:1 sym_range:1 _:1 opd5_const:1 {relu,rq}:1 op_code:11 cmd_id_dep:23 "
        "dbg_mode:1 tsk_typ:4 tsk_eu_typ:5 kernel_rotate:1 opd{0,1}_sign:1 pad_mode:2 "
        "res0_sign:1 opd2_prec:3 pwr_step:4 opd{1,2,3}_const:1 {res0,opd0}_prec:3 "
        "opd{0,1}_{x,y}_ins0:4 opd0_{up,dn,lf,rt}_pad:4 res_op_{x,y}_str:4 opd2_n_str:3 _:11 "
        "opd2_sign:1 intr_en:1 res0_{n,c,h,w}:16 opd{0,1}_{h,w}:16 "
        "{res0,opd0,opd1,opd2,res1,opd3}_addr:32 _:64",
    "sRQ&sDQ":
        "cmd_short:1 sym_range:1 op_code:15 cmd_id_dep:23 dbg_mode:1 tsk_typ:4 tsk_eu_typ:5 "
        "opd{0,2}_sign:1 res0_prec:3 _:4 pwr_step:4 opd1_const:1 opd0_prec:3 opd2_n_str:6 _:1 "
        "res0_addr:26 opd0_addr:27 intr_en:1 res0_{n,c,h,w}:16 opd{1,2}_addr:32",
    "sSG":
        "cmd_short:1 op_code:16 cmd_id_dep:23 dbg_mode:1 tsk_typ:4 tsk_eu_typ:5 opd3_const:1 "
        "intr_en:1 opd0_str:3 _:4 pwr_step:4 opd2_const:1 res0_{n,c,h,w}:16 opd0_{h,w}:16 "
        "opd1_{c,w}:16 res0_prec:3 res0_addr:29 opd0_prec:3 opd0_addr:29 opd1_prec:3 "
        "opd1_addr:29 {opd2,res1,opd3}_addr:32",
    "sSGL":
        "cmd_short:1 op_code:16 cmd_id_dep:23 dbg_mode:1 tsk_typ:4 tsk_eu_typ:5 _:3 "
        "opd3_const:1 intr_en:1 _:4 pwr_step:4 opd2_const:1 {res0,opd1}_prec:3 opd0_str:3 _:7 "
        "res0_{n,c,h,w}:16 opd0_h:16 {res0,opd0,opd1,opd2,res1}_addr:32 _:64",
    "sCW&sBC":
        "cmd_short:1 op_code:16 cmd_id_dep:23 dbg_mode:1 tsk_typ:4 tsk_eu_typ:5 res0_prec:3 _:6 "
        "pwr_step:4 intr_en:1 res0_{n,c,h,w}:16 opd0_{c,w}:16 _:32 {res0,opd0}_addr:32",
    "LAR":
        "opd{0,1}_w_str:1 opd2_const:1 {res0,opd0,opd1}_prec:3 opd2_n_str:3 opd{0,1}_sign:1 "
        "start_tid:6 res0_{c,w}:8 _:2 tsk_typ:4 tsk_eu_typ:5 _:1 tsk_opd_num:2 _:6 pwr_step:4 "
        "_:1 {res0,opd0,opd1,opd2}_addr:16",
    "SYS":
        "_:17 cmd_id_dep:23 dbg_mode:1 tsk_typ:4 tsk_eu_typ:5 reg_vld:2 reg_idx:7 pwr_step:4 "
        "intr_en:1 imm:64",
    "SYSID SYS_TR_ACC":
        "imm0:32 reg_idx0:8 intr_en:1 tsk_typ:4 tsk_eu_typ:3 reg_{idx1,idx2}:8 imm1:64",
    "DMA_tensor":
        "intr_en:1 stride_enable:1 nchw_copy:1 cmd_short:1 cache_{en,flush}:1 _:26 cmd_type:5 "
        "cmd_special_function:3 fill_constant_en:1 src_data_format:4 _:19 cmd_id_dep:21 _:2 "
        "break_point:1 _:8 constant_value:32 {src,dst}_{nstride,cstride,hstride,wstride}:32 "
        "{src,dst}_{nsize,csize,hsize,wsize}:16 src_start_addr_l32:32 src_start_addr_h13:13 "
        "_:19 dst_start_addr_l32:32 dst_start_addr_h13:13 _:19 all_reduce_code:16 _:48 "
        "localmem_mask_{l32,h32}:32",
    "DMA_matrix DMA_general DMA_cw_transpose DMA_reverse":
        "intr_en:1 stride_enable:1 nchw_copy:1 cmd_short:1 cache_{en,flush}:1 _:26 cmd_type:5 "
        "cmd_special_function:3 fill_constant_en:1 src_data_format:4 _:19 cmd_id_dep:21 _:2 "
        "break_point:1 _:8 constant_value:32 {src,dst}_{nstride,cstride,hstride,wstride}:32 "
        "{src,dst}_{nsize,csize,hsize,wsize}:16 src_start_addr_l32:32 src_start_addr_h13:13 "
        "_:19 dst_start_addr_l32:32 dst_start_addr_h13:13 _:83 localmem_mask_{l32,h32}:32",
    "DMA_masked_select":
        "intr_en:1 stride_enable:1 nchw_copy:1 cmd_short:1 cache_{en,flush}:1 _:26 cmd_type:5 "
        "cmd_special_function:3 fill_constant_en:1 {src,mask}_data_format:4 _:15 cmd_id_dep:21 "
        "_:2 break_point:1 _:8 constant_value:32 {src,dst}_{nstride,cstride,hstride,wstride}:32 "
        "src_{nsize,csize}:16 src_hsize_src_wsize_high:16 src_wsize:16 dst_{nsize,csize}:16 "
        "dst_hsize_dst_wsize_high:16 dst_wsize:16 src_start_addr_l32:32 src_start_addr_h13:13 "
        "_:19 dst_start_addr_l32:32 dst_start_addr_h13:13 _:19 mask_start_addr_{l32,h8}:32 "
        "localmem_mask_{l32,h32}:32",
    "DMA_nonzero":
        "intr_en:1 stride_enable:1 nchw_copy:1 cmd_short:1 cache_{en,flush}:1 _:26 cmd_type:5 "
        "cmd_special_function:3 fill_constant_en:1 {src,index}_data_format:4 _:15 cmd_id_dep:21 "
        "_:2 break_point:1 _:8 constant_value:32 {src,dst}_{nstride,cstride,hstride,wstride}:32 "
        "{src,dst}_{nsize,csize,hsize,wsize}:16 src_start_addr_l32:32 src_start_addr_h13:13 "
        "_:19 dst_start_addr_l32:32 dst_start_addr_h13:13 _:83 localmem_mask_{l32,h32}:32",
    "sDMA_sys":
        "intr_en:1 stride_enable:1 nchw_copy:1 cmd_short:1 cache_{en,flush}:1 _:26 cmd_type:5 "
        "cmd_special_function:3 fill_constant_en:1 src_data_format:4 _:19 cmd_id_dep:21 _:2 "
        "break_point:1 index:8 constant_value:32",
    "DMA_gather DMA_scatter":
        "intr_en:1 stride_enable:1 nchw_copy:1 cmd_short:1 cache_{en,flush}:1 _:26 cmd_type:5 "
        "cmd_special_function:3 fill_constant_en:1 src_data_format:4 _:19 cmd_id_dep:21 _:2 "
        "break_point:1 _:8 constant_value:32 {src,dst}_{cstride,hstride}:32 index_cstride:32 "
        "start_pos:32 _:16 src_csize:16 src_hsize:32 src_wsize:16 dst_csize:16 dst_hsize:32 "
        "dst_wsize:16 index_csize:16 index_hsize:32 src_start_addr_l32:32 src_start_addr_h13:13 "
        "_:19 dst_start_addr_l32:32 dst_start_addr_h13:13 _:19 index_start_addr_l32:32 "
        "index_start_addr_h13:13 _:19 localmem_mask_{l32,h32}:32",
    "DMA_compress":
        "intr_en:1 stride_enable:1 nchw_copy:1 cmd_short:1 cache_{en,flush}:1 _:26 cmd_type:5 "
        "cmd_special_function:3 fill_constant_en:1 src_data_format:4 _:19 cmd_id_dep:21 _:2 "
        "break_point:1 _:8 constant_value:32 src_{nstride,cstride,hstride}:32 "
        "racu_{nstride,lanecstride,hstride}:32 meta_{nstride,lanecstride}:32 "
        "src_{nsize,csize,hsize,wsize}:16 meta_hstride:32 {bias0,bias1}:8 is_sign:1 zguard:1 "
        "_:14 src_start_addr_l32:32 src_start_addr_h13:13 _:19 racu_start_addr_l32:32 "
        "racu_start_addr_h13:13 _:19 meta_start_addr_l32:32 meta_start_addr_h13:13 _:19 "
        "localmem_mask_{l32,h32}:32",
    "DMA_decompress":
        "intr_en:1 stride_enable:1 nchw_copy:1 cmd_short:1 cache_{en,flush}:1 _:26 cmd_type:5 "
        "cmd_special_function:3 fill_constant_en:1 src_data_format:4 _:19 cmd_id_dep:21 _:2 "
        "break_point:1 _:8 constant_value:32 racu_{nstride,lanecstride,hstride}:32 "
        "dst_{nstride,cstride,hstride}:32 meta_{nstride,lanecstride}:32 "
        "src_{nsize,csize,hsize,wsize}:16 meta_hstride:32 {bias0,bias1}:8 is_sign:1 zguard:1 "
        "_:14 racu_start_addr_l32:32 racu_start_addr_h13:13 _:19 dst_start_addr_l32:32 "
        "dst_start_addr_h13:13 _:19 meta_start_addr_l32:32 meta_start_addr_h13:13 _:19 "
        "localmem_mask_{l32,h32}:32",
    "DMA_lossy_compress":
        "intr_en:1 stride_enable:1 nchw_copy:1 cmd_short:1 cache_{en,flush}:1 _:26 cmd_type:5 "
        "cmd_special_function:3 fill_constant_en:1 _:23 cmd_id_dep:21 _:2 break_point:1 _:8 "
        "constant_value:32 {src,dst}_{nstride,cstride,hstride}:32 _:64 "
        "src_{nsize,csize,hsize,wsize}:16 _:64 src_start_addr_l32:32 src_start_addr_h13:13 _:19 "
        "dst_start_addr_l32:32 dst_start_addr_h13:13 _:19 all_reduce_code:16 _:112",
    "DMA_lossy_decompress":
        "intr_en:1 stride_enable:1 nchw_copy:1 cmd_short:1 cache_{en,flush}:1 _:26 cmd_type:5 "
        "cmd_special_function:3 fill_constant_en:1 _:23 cmd_id_dep:21 _:2 break_point:1 _:8 "
        "constant_value:32 {src,dst}_{nstride,cstride,hstride}:32 _:64 "
        "src_{nsize,csize,hsize,wsize}:16 _:64 src_start_addr_l32:32 src_start_addr_h13:13 _:19 "
        "dst_start_addr_l32:32 dst_start_addr_h13:13 _:19 all_reduce_code:16 _:48 "
        "localmem_mask_{l32,h32}:32",
    "DMA_randmask":
        "intr_en:1 stride_enable:1 nchw_copy:1 cmd_long:1 cache_{en,flush}:1 _:26 cmd_type:5 "
        "cmd_special_function:3 fill_constant_en:1 src_data_format:4 inter_state:1 init_seed:1 "
        "_:17 cmd_id_dep:21 _:2 break_point:1 _:8 constant_value:32 "
        "{src,dst}_{nstride,cstride,hstride,wstride}:32 {src,dst}_{nsize,csize,hsize,wsize}:16 "
        "src_start_addr_l32:32 src_start_addr_h13:13 _:19 dst_start_addr_l32:32 "
        "dst_start_addr_h13:13 _:83 localmem_mask_{l32,h32}:32",
    "DMA_transfer":
        "intr_en:1 stride_enable:1 nchw_copy:1 cmd_short:1 cache_{en,flush}:1 _:26 cmd_type:5 "
        "cmd_special_function:3 fill_constant_en:1 src_data_format:3 _:20 cmd_id_dep:21 _:2 "
        "break_point:1 _:8 constant_value:32 {src,dst}_{nstride,cstride,hstride,wstride}:32 "
        "{src,dst}_{nsize,csize,hsize,wsize}:16 src_start_addr_l32:32 src_start_addr_h13:13 "
        "_:19 dst_start_addr_l32:32 dst_start_addr_h13:13 _:83 localmem_mask_{l32,h32}:32",
}
# fmt: on
KINDS = {  # of commands that BM1684X and BM1688 do not have, or not so
    "CONV": (0, "0:conv 2:conv_tf32"),
    "CONV_BW": (0, "1:conv_backward 4:conv_backward_tf32"),
    "MM2": (2, "4:matmul_nn 5:matmul_nt 6:matmul_tt 7:matmul_tf32"),
    "RAND": (8, "0:random 1:random_seed 2:random_states"),
    "CMP": (13, "22:gt_select_gt 23:select_gt 24:select_eq 25:lt_select_lt 26:select_lt 27:search"),
    "SYS": (
        15,
        "0:interrupt_barrier 1:spb 2:swr 3:swr_local 4:swr_collect 5:data_barrier 8:send "
        "9:wait 10:fork 11:join 12:exit 13:rand_seed 30:nop 31:end",
    ),
    "DMA_sys": (6, "0:end 1:nop 2:write 3:send 4:wait 5:fork 6:join 7:exit"),
    "DMA_scatter": (8, "0:scatter 1:scatter_add"),
    "DMA_lossy_compress": (12, "0:lossy_compress 1:lossy_compress_random"),
    "DMA_lossy_decompress": (13, "0:lossy_decompress 1:lossy_decompress_random"),
    "DMA_randmask": (15, "0:random_mask"),
    "DMA_transfer": (16, "0:transfer"),
}
