// rknn_query: every command.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rknn_internal.h"

static const char function[] = "rknn_query";

#define API_VERSION "2.3.2"  // of RKNN's runtime whose functions these are

// ---- attributes ---------------------------------------------------------------------------------
static int attribute(rk_context *c, bool input, bool current, rk_form form,
                     rknn_tensor_attr *attr) {
  const rk_model *m = c->model;
  const uint32_t count = input ? m->n_inputs : m->n_outputs;
  if (attr->index >= count)
    return rk_fail(RKNN_ERR_PARAM_INVALID, function,
                   "index of the attribute is %u; the model has %u %s; set it before the query",
                   attr->index, count, input ? "inputs" : "outputs");
  const rk_tensor *t = &(input ? m->inputs : m->outputs)[attr->index];
  if (current && c->session) {
    itg_view now;
    itg_status status = input ? itg_get_input(c->session, t->index, &now)
                              : itg_get_output(c->session, t->index, &now);
    if (status) return rk_failed(status, function, itg_session_error(c->session));
    rk_fill_attr(m, t, input, now.shape, now.rank, form, attr);
    return RKNN_SUCC;
  }
  itg_info info, largest = {.bytes = 0};
  for (uint32_t p = 0; p < m->n_plans; p++) {
    if (input) itg_model_input(m->model, p, t->index, &info);
    else itg_model_output(m->model, p, t->index, &info);
    if (!p || info.bytes > largest.bytes) largest = info;
  }
  rk_fill_attr(m, t, input, largest.shape, largest.rank, form, attr);
  return RKNN_SUCC;
}

static int range(const rk_context *c, rknn_input_range *range) {
  const rk_model *m = c->model;
  const uint32_t index = range->index;
  if (index >= m->n_inputs)
    return rk_fail(RKNN_ERR_PARAM_INVALID, function, "index is %u; the model has %u inputs", index,
                   m->n_inputs);
  memset(range, 0, sizeof *range);
  range->index = index;
  for (uint32_t p = 0; p < m->n_plans && p < RKNN_MAX_DYNAMIC_SHAPE_NUM; p++) {
    itg_info info;
    rknn_tensor_attr attr = {.index = index};
    itg_model_input(m->model, p, m->inputs[index].index, &info);
    rk_fill_attr(m, &m->inputs[index], true, info.shape, info.rank, RK_PLAIN, &attr);
    memcpy(range->name, attr.name, sizeof range->name);
    memcpy(range->dyn_range[p], attr.dims, sizeof attr.dims);
    range->fmt = attr.fmt;
    range->n_dims = attr.n_dims;
    range->shape_number = p + 1;
  }
  return RKNN_SUCC;
}

// ---- reports ------------------------------------------------------------------------------------
static int perf_detail(rk_context *c, rknn_perf_detail *detail) {
  static char without[] =
      "no times: rknn_init needs the flag RKNN_FLAG_COLLECT_PERF_MASK to collect them\n";
  if (!c->session || !c->options.profile) {  // no error: programs query it without the flag
    *detail = (rknn_perf_detail){without, sizeof without - 1};
    return RKNN_SUCC;
  }
  const uint32_t steps = itg_session_steps(c->session);
  const size_t room = 512 + (size_t)steps * 400;
  char *text = malloc(room);
  if (!text) return rk_fail(RKNN_ERR_MALLOC_FAIL, function, "no memory for a report");
  size_t at = (size_t)snprintf(text, room, "%-5s%-24s%-12s%12s%8s%14s  %s\n", "ID", "OpType",
                               "Target", "Time(us)", "Calls", "MACs", "FullName");
  double total = 0;
  uint32_t id = 0;
  for (uint32_t i = 0; i < steps; i++) {
    itg_profile p;
    if (itg_get_profile(c->session, i, &p) || !p.calls) continue;
    const double us = (double)p.ns / 1e3 / (double)p.calls;
    total += us;
    at += (size_t)snprintf(text + at, room - at, "%-5u%-24.60s%-12.20s%12.1f%8llu%14llu  %.200s\n",
                           ++id, p.op, strncmp(p.op, "npu.", 4) ? "CPU" : "NPU", us,
                           (unsigned long long)p.calls, (unsigned long long)p.macs, p.origin);
  }
  at += (size_t)snprintf(text + at, room - at,
                         "Total Operator Elapsed Time(us): %.1f\nTimes are those of this PC; "
                         "`intaglio perf` predicts those of the chip.\n",
                         total);
  free(c->perf);
  c->perf = detail->perf_data = text;
  detail->data_len = at;
  return RKNN_SUCC;
}

static int memory(rk_context *c, rknn_mem_size *size) {
  itg_memory memory;
  itg_error error = {{0}};
  itg_options options = c->options;
  options.weights = options.internal = NULL;
  options.internal_later = 0;
  options.core_mask = 0;
  const itg_status status = itg_model_memory(c->model->model, &options, &memory, &error);
  if (status) return rk_failed(status, function, error.words);
  memset(size, 0, sizeof *size);
  size->total_weight_size = (uint32_t)memory.weights;
  size->total_internal_size = (uint32_t)memory.internal;
  size->total_dma_allocated_size = memory.weights + memory.session;
  return RKNN_SUCC;
}

static void version(const rk_context *c, rknn_sdk_version *version) {
  memset(version, 0, sizeof *version);
  snprintf(version->api_version, sizeof version->api_version, "%s (intaglio %s)", API_VERSION,
           itg_version());
  snprintf(version->drv_version, sizeof version->drv_version, "simulator of %s",
           c->model->platform->name);
}

static uint32_t size_of(rknn_query_cmd cmd) {
  switch ((int)cmd) {
    case RKNN_QUERY_IN_OUT_NUM: return sizeof(rknn_input_output_num);
    case RKNN_QUERY_PERF_DETAIL: return sizeof(rknn_perf_detail);
    case RKNN_QUERY_PERF_RUN: return sizeof(rknn_perf_run);
    case RKNN_QUERY_SDK_VERSION: return sizeof(rknn_sdk_version);
    case RKNN_QUERY_MEM_SIZE: return sizeof(rknn_mem_size);
    case RKNN_QUERY_CUSTOM_STRING: return sizeof(rknn_custom_string);
    case RKNN_QUERY_INPUT_DYNAMIC_RANGE: return sizeof(rknn_input_range);
    default: return sizeof(rknn_tensor_attr);
  }
}

RK_API int rknn_query(rknn_context context, rknn_query_cmd cmd, void *info, uint32_t size) {
  rk_context *c = rk_find(context, false);
  if (!c) return rk_fail(RKNN_ERR_CTX_INVALID, function, "no such context; call rknn_init first");
  if ((int)cmd < 0 || cmd >= RKNN_QUERY_CMD_MAX)
    return rk_fail(RKNN_ERR_PARAM_INVALID, function,
                   "command %d is unknown; it is one of "
                   "rknn_query_cmd",
                   (int)cmd);
  if (cmd == RKNN_QUERY_DEVICE_MEM_INFO)
    return rk_fail(RKNN_ERR_DEVICE_UNAVAILABLE, function,
                   "RKNN_QUERY_DEVICE_MEM_INFO asks an NPU driver, which a PC lacks; use "
                   "RKNN_QUERY_MEM_SIZE");
  if (!info || size < size_of(cmd))
    return rk_fail(RKNN_ERR_PARAM_INVALID, function,
                   "command %d fills %u bytes, info %s %u; give the struct of the command",
                   (int)cmd, size_of(cmd), info ? "has" : "is NULL, size", size);
  if (cmd != RKNN_QUERY_PERF_RUN && cmd != RKNN_QUERY_SDK_VERSION) rk_wait(c, function, 0);
  switch ((int)cmd) {
    case RKNN_QUERY_IN_OUT_NUM:
      *(rknn_input_output_num *)info =
          (rknn_input_output_num){c->model->n_inputs, c->model->n_outputs};
      return RKNN_SUCC;
    case RKNN_QUERY_INPUT_ATTR: return attribute(c, true, false, RK_PLAIN, info);
    case RKNN_QUERY_OUTPUT_ATTR: return attribute(c, false, false, RK_PLAIN, info);
    case RKNN_QUERY_NATIVE_INPUT_ATTR: return attribute(c, true, false, RK_NATIVE, info);
    case RKNN_QUERY_NATIVE_OUTPUT_ATTR: return attribute(c, false, false, RK_NATIVE, info);
    case RKNN_QUERY_NATIVE_NHWC_INPUT_ATTR: return attribute(c, true, false, RK_NATIVE_NHWC, info);
    case RKNN_QUERY_NATIVE_NHWC_OUTPUT_ATTR:
      return attribute(c, false, false, RK_NATIVE_NHWC, info);
    case RKNN_QUERY_CURRENT_INPUT_ATTR: return attribute(c, true, true, RK_PLAIN, info);
    case RKNN_QUERY_CURRENT_OUTPUT_ATTR: return attribute(c, false, true, RK_PLAIN, info);
    case RKNN_QUERY_CURRENT_NATIVE_INPUT_ATTR: return attribute(c, true, true, RK_NATIVE, info);
    case RKNN_QUERY_CURRENT_NATIVE_OUTPUT_ATTR: return attribute(c, false, true, RK_NATIVE, info);
    case RKNN_QUERY_INPUT_DYNAMIC_RANGE: return range(c, info);
    case RKNN_QUERY_PERF_DETAIL: return perf_detail(c, info);
    case RKNN_QUERY_PERF_RUN:
      rk_wait(c, function, 0);
      ((rknn_perf_run *)info)->run_duration = c->microseconds;
      return RKNN_SUCC;
    case RKNN_QUERY_MEM_SIZE: return memory(c, info);
    case RKNN_QUERY_CUSTOM_STRING:
      memset(info, 0, sizeof(rknn_custom_string));
      snprintf(info, sizeof(rknn_custom_string), "%s",
               c->model->custom_string ? c->model->custom_string : "");
      return RKNN_SUCC;
    default: version(c, info); return RKNN_SUCC;
  }
}
