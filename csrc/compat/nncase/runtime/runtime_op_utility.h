// get_bytes, compute_size and get_default_strides are in datatypes.h.
#pragma once
// clang-format off: this is C++, the rules are for C
#include "datatypes.h"
#include "result.h"
