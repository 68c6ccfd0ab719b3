// cpu.chain: a short program of elementwise f32 operations. All operations run on a block that fits
// the L1 cache before the next block starts, so that memory is read and written once. Compiled once
// per ISA.
#define ITG_NEST_OPERANDS 8
#include "chain.h"
#include "loop_nest.h"

_Static_assert(ITG_NEST_OPERANDS == ITG_CHAIN_INPUTS, "a chain walks all its operands at once");
enum { BLOCK = ITG_CHAIN_BLOCK };

typedef struct instruction {
  itg_pair_fn *pair;  // one of the two is NULL
  itg_unary_fn *unary;
  int arg[2], slot;  // operands are numbered inputs first, then results; the slot is the block of
                     // this result
  const double *params;
} instruction;

// Decodes the program and assigns a block to every result. A result may reuse the block of an
// operand that is not read again.
static void decode(const itg_call *call, instruction *list) {
  const itg_attrs_chain *a = call->attrs;
  const int n = (int)a->n_ops, first = (int)call->n_in;
  int last_reader[ITG_CHAIN_OPS] = {0};
  for (int i = 0; i < n; i++) {
    list[i] = (instruction){.arg = {(int)a->args[2 * i], (int)a->args[2 * i + 1]},
                            .params = a->params + 2 * i};
    if (itg_is_pair(a->ops[i])) list[i].pair = itg_pair(a->ops[i]);
    else list[i].unary = itg_unary(a->ops[i] - ITG_PAIR_COUNT + 1);
    for (int k = 0; k < 1 + !!list[i].pair; k++)
      if (list[i].arg[k] >= first) last_reader[list[i].arg[k] - first] = i;
  }
  uint32_t used = 0;
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < 1 + !!list[i].pair; k++) {
      const int r = list[i].arg[k] - first;
      if (r >= 0 && last_reader[r] == i) used &= ~(1u << list[r].slot);
    }
    while (used >> list[i].slot & 1) list[i].slot++;
    used |= 1u << list[i].slot;
  }
}

typedef struct operand {
  const float *at;
  bool stays;  // one element for the whole block
} operand;

// Runs the program on n elements; x holds the inputs and receives the results. The last one goes to
// `out`.
static void execute(const instruction *list, int n_ops, operand *x, int n_in, float *blocks,
                    float *out, int64_t n) {
  for (int i = 0; i < n_ops; i++) {
    const instruction *in = &list[i];
    const operand a = x[in->arg[0]], b = in->pair ? x[in->arg[1]] : a;
    const bool stays = a.stays && b.stays;
    float *to = i == n_ops - 1 ? out : blocks + in->slot * BLOCK;
    if (in->unary) in->unary(a.at, to, stays ? 1 : n, in->params);
    else
      in->pair(a.at, b.at, to, stays ? 1 : n,
               stays || a.stays == b.stays ? BOTH_MOVE
               : a.stays                   ? A_STAYS
                                           : B_STAYS);
    x[n_in + i] = (operand){to, stays};
  }
  if (x[n_in + n_ops - 1].stays)
    for (int64_t k = 1; k < n; k++) out[k] = out[0];
}

ITG_FN(chain, f32) {
  const itg_attrs_chain *a = call->attrs;
  const itg_tensor *out = call->out[0];
  if (itg_empty(out)) return NULL;
  const int n_in = (int)call->n_in, n_ops = (int)a->n_ops;
  instruction list[ITG_CHAIN_OPS];
  decode(call, list);
  float *collected = (float *)call->scratch + (int64_t)part * (n_in + n_ops) * BLOCK,
        *blocks = collected + n_in * BLOCK;

  const itg_nest nest = itg_nest_broadcast(call->in, n_in, out);
  const int last = nest.rank - 1;
  const int64_t inner = nest.size[last], count = itg_count(out);
  const bool whole =
      inner < BLOCK &&
      last > 0;  // blocks of whole rows: for short ones, a turn each would cost too much
  bool dense[ITG_CHAIN_INPUTS], repeats[ITG_CHAIN_INPUTS], ready[ITG_CHAIN_INPUTS] = {false};
  for (int k = 0; k < n_in; k++) {
    dense[k] = itg_count(call->in[k]) == count;
    repeats[k] = true;  // the same row again and again
    for (int d = 0; d < last; d++) repeats[k] = repeats[k] && nest.step[k][d] == 0;
  }
  const int64_t pieces = (inner + BLOCK - 1) / BLOCK,
                even = ((inner + pieces - 1) / pieces + 15) / 16 * 16;
  const int64_t most = whole ? BLOCK / inner * inner : even < BLOCK ? even : BLOCK;
  int64_t i, end;
  itg_share(count, whole ? most : 4096, part, parts, &i, &end);
  itg_place at = itg_nest_seek(&nest, i / inner);
  for (int64_t n, col = i % inner; i < end; i += n) {
    operand x[ITG_CHAIN_INPUTS + ITG_CHAIN_OPS];
    n = end - i < most ? end - i : most;
    if (!whole && inner - col < n) n = inner - col;
    itg_place next = at;
    for (int k = 0; k < n_in; k++) {
      const float *data = call->in[k]->data;
      const int64_t step = nest.step[k][last];
      if (dense[k]) x[k] = (operand){data + i, false};
      else if (repeats[k] && step == 0) x[k] = (operand){data, true};
      else if (!whole) x[k] = (operand){data + at.offset[k] + col * step, step == 0};
      else {
        x[k] = (operand){collected + k * BLOCK, false};
        if (ready[k]) continue;
        next = at;
        itg_nest_collect(&nest, &next, 0, k, data, collected + k * BLOCK, sizeof(float), n);
        ready[k] = repeats[k];
      }
    }
    execute(list, n_ops, x, n_in, blocks, (float *)out->data + i, n);
    if (whole) {
      at = next;  // moved only where an operand was collected, and only those look at it
    } else if ((col += n) == inner) {
      col = 0;
      itg_nest_next(&nest, &at);
    }
  }
  return NULL;
}
