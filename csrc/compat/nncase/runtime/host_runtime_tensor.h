// Where programs for nncase 1.x look for host_runtime_tensor.
#pragma once
#include "runtime_tensor.h"
