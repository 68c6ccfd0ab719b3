// Where programs for nncase 1.x look for host_runtime_tensor.
#pragma once
// clang-format off: this is C++, the rules are for C
#include "runtime_tensor.h"
