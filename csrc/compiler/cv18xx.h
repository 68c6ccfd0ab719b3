// Executes the commands of CV181x and CV180x: what the chips compute, bit for bit.
#pragma once
#include <stdint.h>

#include "intaglio.h"

// A command of the TIU: its fields in the order of npu/chips/cv18xx/fields.py.
typedef struct {
  uint32_t cmd_en, cmd_end, cmd_id_en, cmd_keep, cmd_intr_en, tsk_typ, tsk_eu_typ, tsk_opd_num,
      opt_res_shift, opt_left_shift, opt_shift_typ, opt_rshift_typ, dummy1, opd_typ, opt_chl_quan,
      cmd_id_tpu, cmd_id_gdma, quan_m, opt_res0_sign, opt_opd0_sign, opt_opd1_sign, opt_opd2_sign,
      opt_res0_seg, opt_opd0_seg, opt_opd1_seg, opt_opd2_seg, ps32_md, double_conv, opt_left_tran,
      fp_round_typ, opt_relu_typ, opt_relu_value, cmd_pre_exe_typ, opt_res_add, rsvd0,
      conv_opd0_x_ins0, conv_opd0_y_ins0, conv_opd0_x_ins0_last, conv_opd0_y_ins0_last,
      conv_opd1_x_ins0, conv_opd1_y_ins0, dummy0, opd0_ins_val, conv_opd0_up_pad, conv_opd0_dn_pad,
      conv_opd0_lf_pad, conv_opd0_rt_pad, res0_n, res0_c, res0_h, res0_w, conv_op_x_str,
      conv_op_y_str, cmd_pre_exe, rsvd1, res0_addr, opd0_addr, opd1_addr, opd2_addr, opt_opd0_const,
      opt_opd1_const, opt_opd2_const, short_nchwstr_same, short_res0_str, short_opd0_str,
      short_opd1_str, short_opd2_str, dummy2, opd0_n, opd0_c, dummy3, rsvd2, opd0_h, opd0_w, opd1_n,
      opd1_c, opd1_h, opd1_w, opd2_n, opd2_c, opd2_h, opd2_w, dummy4, rsvd3, layer_info, res0_n_str,
      res0_c_str, res0_h_str, res0_w_str, res0_b_str, opd0_n_str, dummy5, rsvd4, opd0_c_str,
      opd0_h_str, opd0_w_str, opd0_b_str, opd1_n_str, opd1_c_str, opd1_h_str, dummy6, rsvd5,
      opd1_w_str, opd1_b_str, opd2_n_str, opd2_c_str, opd2_h_str, opd2_w_str, opd2_b_str, dummy7,
      rsvd6;
} itg_cv18xx_tiu;

// A command of the TDMA.
typedef struct {
  uint32_t vld, compress_en, eod, intp_en, bar_en, check_bf16_value, trans_dir, rsv00, trans_fmt,
      transpose_md, rsv01, intra_cmd_paral, outstanding_en, cmd_id, spec_func, dst_fmt, src_fmt,
      cmprs_fmt, sys_dtype, rsv2_1, int8_sign, compress_zero_guard, int8_rnd_mode, wait_id_tpu,
      wait_id_other_tdma, wait_id_sdma, const_val, src_base_reg_sel, mv_lut_idx, dst_base_reg_sel,
      mv_lut_base, rsv4_5, dst_h_stride, dst_c_stride_low, dst_n_stride, src_h_stride,
      src_c_stride_low, src_n_stride, dst_c, src_c, dst_w, dst_h, src_w, src_h, dst_base_addr_low,
      src_base_addr_low, src_n, dst_base_addr_high, src_base_addr_high, src_c_stride_high,
      dst_c_stride_high, compress_bias0, compress_bias1, layer_ID;
} itg_cv18xx_tdma;

enum { ITG_CV18XX_BASES = 8 };

typedef struct itg_cv18xx {
  uint8_t *local;  // [lanes][lane_bytes]
  int64_t lanes, lane_bytes;
  uint8_t *ddr[ITG_CV18XX_BASES];  // by base register
  int64_t ddr_bytes[ITG_CV18XX_BASES];
  const char *why;  // a command could not be executed
  void *scratch;    // memory for one command, of `scratch_bytes`; both are 0 before a run
  int64_t scratch_bytes;
  void *kept;  // the input of the last convolution, of `kept_bytes`; both are 0 before a run
  int64_t kept_bytes;
  uint32_t isa;  // instruction sets that may be used, of those of the CPU
} itg_cv18xx;

// Executes commands in order: the next of `tiu` where is_tiu is set, else the next of `tdma`. The
// result is `count`, or the index of the first command that cannot be executed.
ITG_API int64_t itg_cv18xx_run(itg_cv18xx *machine, const uint8_t *is_tiu, int64_t count,
                               const itg_cv18xx_tiu *tiu, const itg_cv18xx_tdma *tdma);

// Weights that the TDMA decompresses: `bytes` of them into `out`. 0: they are not valid.
ITG_API int itg_cv18xx_expand(const uint8_t *in, int64_t size, uint8_t *out, int64_t bytes,
                              int is_bf16);
