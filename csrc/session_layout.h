// How the memory of a session is divided, and what session.c, session_memory.c and session_steps.c
// share.
#pragma once
#include "runtime.h"

// Offsets in the one block that holds the session, its tables, the arena, the scratch and the I/O
// buffers.
typedef struct itg_session_layout {
  uint64_t tensors, args, next, steps, plans, inputs, outputs, symbols, settled, attrs, prepared,
      arena, io, total;
  uint32_t first_plan, last_plan, n_steps;
} itg_session_layout;

// session_memory.c
uint32_t itg_threads_of(const itg_options *options);
itg_status itg_measure_session(const itg_model *model, const itg_options *options,
                               itg_session_layout *layout, itg_memory *memory, itg_error *error);
// Has a session memory of its own for output i? States always; what lies in the arena is read
// there.
bool itg_own_output(const itg_model *model, const itg_family *family, uint32_t i, bool external);
// session_steps.c
// Refuses a core_mask that the NPU programs of these plans cannot run with.
itg_status itg_check_cores(const itg_model *model, const itg_session_layout *layout, uint32_t mask,
                           itg_error *error);
// Binds the steps of all plans.
void itg_bind_steps(itg_session *session, const itg_session_layout *layout);
