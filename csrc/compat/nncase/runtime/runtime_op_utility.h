// get_bytes, compute_size and get_default_strides are in datatypes.h.
#pragma once
#include "datatypes.h"
#include "result.h"
