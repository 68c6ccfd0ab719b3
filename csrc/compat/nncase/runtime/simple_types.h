// Where programs look for element types and shapes.
#pragma once
// clang-format off: this is C++, the rules are for C
#include "datatypes.h"
