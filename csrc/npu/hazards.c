// Data hazards of a program: an instruction may touch bytes that another one writes, or write bytes
// that another one reads, only if its waits say that the other has ended. Bytes that were never
// written must not be read. So results do not depend on the speed of the queues.
#include <stdlib.h>
#include <string.h>

#include "program.h"

typedef struct node {  // one instruction
  const itg_npu_instruction *record;
  uint32_t ended[ITG_NPU_QUEUES];  // instructions of each queue of its core that have ended before
                                   // it begins, by its own waits and those of its predecessors
  uint32_t level;                  // barriers that all cores have passed before it begins
  uint32_t place;                  // its index in its queue
  uint32_t first, count;           // regions
} node;

typedef struct list {
  uint32_t *at;  // numbers of nodes
  uint32_t count;
} list;

enum {
  OUT_LOADS = ITG_NPU_QUEUES,  // after the queues: loads and stores in memory that cores share
  OUT_STORES,
  BARRIERS,
  LISTS,
};

typedef struct order {
  const itg_npu_program *program;
  node *nodes;
  itg_npu_region *regions;
  list lists[ITG_NPU_CORES][LISTS];
  uint8_t
      *written;  // a bit for each byte of the cores' SRAM, then of `internal`, then of the outputs
  uint64_t outputs[16];  // first bit of each output in `written`
  uint64_t budget;       // comparisons that are left
} order;

static const char *const memories[] = {"SRAM", "the weights", "internal memory", "an input",
                                       "an output"};
static const char *const queues[] = {"load", "compute", "store"};

// ---- bytes that have been written ---------------------------------------------------------------
static uint64_t bit_of(const order *o, const itg_npu_region *r, uint32_t core) {
  const uint64_t shared = o->program->cores * o->program->sram;
  if (r->space == ITG_NPU_SRAM) return core * o->program->sram + r->at;
  return (r->space == ITG_NPU_INTERNAL ? shared : o->outputs[r->slot]) + r->at;
}

static itg_words check_written(order *o, uint32_t number, const node *n) {
  const uint32_t core = n->record->head.core;
  for (uint32_t k = n->first; k < n->first + n->count; k++) {
    const itg_npu_region *r = &o->regions[k];
    if (!r->write && (r->space == ITG_NPU_SRAM || r->space == ITG_NPU_INTERNAL) &&
        !itg_npu_mark_region(o->written, bit_of(o, r, core), r, false))
      return itg_npu_refuse(number, n->record,
                            "it reads bytes of %s at %llu that nothing has written",
                            memories[r->space], (unsigned long long)r->at);
  }
  for (uint32_t k = n->first; k < n->first + n->count; k++) {
    const itg_npu_region *r = &o->regions[k];
    if (r->write) itg_npu_mark_region(o->written, bit_of(o, r, core), r, true);
  }
  return NULL;
}

// ---- order by waits -----------------------------------------------------------------------------
// n begins after `ended` has ended: all that had ended when `ended` began has ended too.
static void know(node *n, const node *ended) {
  for (int q = 0; q < ITG_NPU_QUEUES; q++)
    if (ended->ended[q] > n->ended[q]) n->ended[q] = ended->ended[q];
  if (ended->level > n->level) n->level = ended->level;
}

static node *of(order *o, uint32_t core, int which, uint32_t place) {
  return &o->nodes[o->lists[core][which].at[place]];
}

// Finds all instructions that have ended before n begins.
static itg_words follow(order *o, uint32_t number, node *n) {
  const itg_npu_head *h = &n->record->head;
  const list *mine = o->lists[h->core];
  const int queue = itg_npu_queue_of(h->op);
  n->place = mine[queue].count;
  for (int q = 0; q < ITG_NPU_QUEUES; q++) {
    if (h->wait[q] > mine[q].count)
      return itg_npu_refuse(number, n->record,
                            "it waits for %u of queue %s, of which %u come before it", h->wait[q],
                            queues[q], mine[q].count);
    const uint32_t wait = q == queue ? mine[q].count : h->wait[q];
    if (wait) know(n, of(o, h->core, q, wait - 1));
    if (wait > n->ended[q]) n->ended[q] = wait;
  }
  if (h->barrier > n->level) n->level = h->barrier;
  for (uint32_t c = 0; c < o->program->cores; c++)
    if (n->level > o->lists[c][BARRIERS].count)
      return itg_npu_refuse(number, n->record,
                            "it waits for barrier %u, which core %u has not reached", n->level, c);
  if (n->level) {
    const node *passed = of(o, h->core, BARRIERS, n->level - 1);
    know(n, passed);
    if (passed->place + 1 > n->ended[ITG_NPU_STORES]) n->ended[ITG_NPU_STORES] = passed->place + 1;
  }
  return NULL;
}

static itg_words compare(order *o, uint32_t number, const node *n, uint32_t other, bool shared) {
  const node *m = &o->nodes[other];
  if (!o->budget--) return "too many instructions run ahead of others to compare them; add waits";
  for (uint32_t i = n->first; i < n->first + n->count; i++)
    for (uint32_t k = m->first; k < m->first + m->count; k++) {
      const itg_npu_region *a = &o->regions[i], *b = &o->regions[k];
      if (!(a->write | b->write) || a->space != b->space || (shared && a->space == ITG_NPU_SRAM))
        continue;
      if (a->space == ITG_NPU_OUTPUT && a->slot != b->slot) continue;
      if (itg_npu_touch(a, b))
        return itg_npu_refuse(
            number, n->record,
            "it %s bytes of %s at %llu that instruction %u %s, without a wait for it",
            a->write ? "writes" : "reads", memories[a->space], (unsigned long long)a->at, other,
            b->write ? "writes" : "reads");
    }
  return NULL;
}

static itg_words check_waits(order *o, uint32_t number, const node *n) {
  const uint32_t core = n->record->head.core;
  const int queue = itg_npu_queue_of(n->record->head.op);
  itg_words wrong = NULL;
  for (int q = 0; q < ITG_NPU_QUEUES && !wrong; q++)
    for (uint32_t k = o->lists[core][q].count; q != queue && !wrong && k-- > n->ended[q];)
      wrong = compare(o, number, n, o->lists[core][q].at[k], false);
  for (uint32_t c = 0; c < o->program->cores && !wrong && queue != ITG_NPU_COMPUTES; c++)
    for (int q = OUT_LOADS; c != core && !wrong && q <= OUT_STORES; q++) {
      const node *passed = n->level ? of(o, c, BARRIERS, n->level - 1) : NULL;
      const uint32_t ended = !passed          ? 0
                             : q == OUT_LOADS ? passed->ended[ITG_NPU_LOADS]
                                              : passed->place + 1;
      for (uint32_t k = o->lists[c][q].count; !wrong && k-- > 0;) {
        if (of(o, c, q, k)->place < ended) break;
        wrong = compare(o, number, n, o->lists[c][q].at[k], true);
      }
    }
  return wrong;
}

// Whether n touches memory that all cores share and that is written.
static bool touches_shared(const order *o, const node *n) {
  for (uint32_t k = n->first; k < n->first + n->count; k++)
    if (o->regions[k].space == ITG_NPU_INTERNAL || o->regions[k].space == ITG_NPU_OUTPUT)
      return true;
  return false;
}

static void push(list *l, uint32_t number) { l->at[l->count++] = number; }

static itg_words check_all(order *o) {
  const itg_npu_instruction *i = itg_npu_first(o->program);
  uint32_t regions = 0;
  for (uint32_t number = 0; number < o->program->instructions; number++, i = itg_npu_next(i)) {
    node *n = &o->nodes[number];
    *n = (node){.record = i, .first = regions};
    n->count = (uint32_t)itg_npu_regions_of(i, o->regions + regions);
    regions += n->count;
    itg_words wrong = follow(o, number, n);
    if (!wrong) wrong = check_waits(o, number, n);
    if (!wrong) wrong = check_written(o, number, n);
    if (wrong) return wrong;
    list *mine = o->lists[i->head.core];
    const int queue = itg_npu_queue_of(i->head.op);
    push(&mine[queue], number);
    if (i->head.op == ITG_NPU_BARRIER) push(&mine[BARRIERS], number);
    if (queue != ITG_NPU_COMPUTES && touches_shared(o, n))
      push(&mine[queue == ITG_NPU_LOADS ? OUT_LOADS : OUT_STORES], number);
  }
  return NULL;
}

// Counts the entries of each list, the regions, and the bytes that are stored to outputs. Returns
// the entries of all lists.
static uint64_t measure(order *o, uint64_t *regions, uint64_t *stored) {
  const itg_npu_instruction *i = itg_npu_first(o->program);
  itg_npu_region few[ITG_NPU_REGIONS];
  uint64_t total = 0;
  for (uint32_t number = 0; number < o->program->instructions; number++, i = itg_npu_next(i)) {
    const int queue = itg_npu_queue_of(i->head.op);
    list *mine = o->lists[i->head.core];
    mine[queue].count++, total++;
    if (i->head.op == ITG_NPU_BARRIER) mine[BARRIERS].count++, total++;
    if (queue != ITG_NPU_COMPUTES)
      mine[queue == ITG_NPU_LOADS ? OUT_LOADS : OUT_STORES].count++, total++;
    const int n = itg_npu_regions_of(i, few);
    *regions += (uint64_t)n;
    for (int k = 0; k < n; k++) {
      uint64_t bytes = few[k].space == ITG_NPU_OUTPUT ? few[k].run : 0;
      for (int d = 0; d < few[k].dims; d++) bytes *= few[k].dim[d].count;
      *stored += bytes;
    }
  }
  return total;
}

itg_words itg_npu_check_order(const itg_npu_program *p) {
  order o = {.program = p, .budget = ((uint64_t)1 << 22) + 4096ull * p->instructions};
  uint64_t regions = 0, stored = 0, bits = p->cores * p->sram + p->internal;
  const uint64_t total = measure(&o, &regions, &stored), inside = bits;
  for (uint32_t k = 0; k < p->outputs; k++) {
    const itg_npu_port *port = &itg_npu_ports(p)[p->inputs + k];
    uint64_t bytes = itg_item(port->dtype);
    for (int a = 0; a < port->rank; a++) bytes *= (uint64_t)port->shape[a];
    o.outputs[k] = bits;
    bits += bytes;
  }
  const char *const unwritten = "the program leaves bytes of its outputs unwritten";
  if (bits - inside > stored)
    return unwritten;  // here, before memory is allocated for outputs of absurd size
  uint32_t *numbers = malloc((total + 1) * sizeof *numbers), *at = numbers;
  o.nodes = malloc((p->instructions + 1ull) * sizeof *o.nodes);
  o.regions = malloc((regions + 1) * sizeof *o.regions);
  o.written = calloc(bits / 8 + 1, 1);
  itg_words wrong = "there is no memory to check the program";
  if (numbers && o.nodes && o.regions && o.written) {
    for (uint32_t c = 0; c < p->cores; c++)
      for (int k = 0; k < LISTS; k++) {
        o.lists[c][k].at = at;
        at += o.lists[c][k].count;
        o.lists[c][k].count = 0;
      }
    wrong = check_all(&o);
    if (!wrong && p->outputs && !itg_npu_mark(o.written, o.outputs[0], bits - o.outputs[0], false))
      wrong = unwritten;
  }
  free(numbers);
  free(o.nodes);
  free(o.regions);
  free(o.written);
  return wrong;
}
