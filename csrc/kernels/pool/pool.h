// Shared by the pooling kernels.
#pragma once
#include "window.h"

enum itg_pool_kind {
  ITG_POOL_MAX,
  ITG_POOL_AVG,
  ITG_POOL_LP
};  // the order of the ENUM in conv.inc

itg_words itg_pool_of(const itg_call *call, itg_window *w,
                      itg_tensor *out);  // the window and the output's type
