// What the session asks about the cores of an NPU program.
#pragma once
#include "program.h"

// Refuses a core_mask (itg_options, not 0) that a checked program cannot run with.
itg_words itg_npu_check_cores(const void *program, uint32_t core_mask);
