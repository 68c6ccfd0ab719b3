// Where programs look for helpers of tensors.
#pragma once
#include "runtime_op_utility.h"
#include "runtime_tensor.h"
