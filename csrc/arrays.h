// Arrays of numpy as arguments of a run, for the Python package alone: src/intaglio/numpy_struct.py
// has the same structs.
#pragma once
#include "runtime.h"

#define ITG_OTHER_ARRAYS UINT32_MAX  // instead of a status: an array is not as its rule says

typedef struct itg_array_rule {  // what the array of an input or output must be like
  const void *type;              // the object that is its dtype
  uint64_t bytes;
  int64_t shape[ITG_MAX_RANK];
  uint32_t rank;
  uint32_t flags;   // bits of numpy's flags that must be set
  uint32_t number;  // of the input or output in the package
} itg_array_rule;

typedef struct itg_arrays {
  const void *kind;  // the class of arrays
  // offsets of fields in bytes: class, elements, rank, shape, dtype and flags
  uint32_t kind_at, data_at, rank_at, shape_at, type_at, flags_at;
  uint32_t n_inputs, n_outputs;
  const itg_array_rule *rules;  // of the inputs, then of the outputs
  const void *const *objects;   // in the same order
  const void **inputs;          // addresses for itg_run_with, by number; those of states stay NULL
  void **outputs;
} itg_arrays;

// Runs the session if all arrays are as their rules say and no output overlaps an input; else
// returns ITG_OTHER_ARRAYS.
ITG_API uint32_t itg_run_arrays(itg_session *session, const itg_arrays *arrays);
