// The thread pool of a session, or of several. A job is split into parts. Each thread first takes
// the part with its own number, which it also had in the step before (its data is in the cache),
// and then parts that nobody has begun. So the caller never waits for a thread that is not
// scheduled: it does that part itself. Workers spin for a while before they sleep, because the next
// step usually comes within microseconds. A forked child has no workers: its first run starts new
// ones.
#define _GNU_SOURCE  // pthread_setaffinity_np
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "runtime.h"

enum { SPINS = 3000 };  // some tens of microseconds

typedef struct worker {
  itg_pool *pool;
  uint32_t part;
  pthread_t thread;
} worker;

typedef struct claim {
  _Alignas(64) atomic_uint job;  // the last one in which this part was taken
} claim;

// Variables that one thread writes while another waits have a cache line of their own.
struct itg_pool {
  // the current job, in the line that workers watch; may be read while the next one is written, but
  // then the claim that follows fails
  _Alignas(64) atomic_uint epoch;  // its number
  atomic_uint parts;
  _Atomic(itg_run_fn) run;
  _Atomic(const itg_call *) call;
  atomic_bool stop;
  claim *claimed;               // per part; at the end of a job all of them hold its number
  uint32_t threads, n_workers;  // wanted, with the caller's; running, without it
  atomic_uint started;   // 2 * itg_forks() of the process while it starts the workers, then 1 more
  bool shared;           // between sessions
  uint32_t unpinned;     // workers that the system did not let run on their CPU
  const uint32_t *cpus;  // of the workers, in turn; NULL: any
  uint32_t n_cpus;
  _Alignas(64) atomic_bool taken;  // by a session, for a step
  _Alignas(64) atomic_uint left;   // parts that are not finished
  _Atomic(itg_words) words;
  _Alignas(64) atomic_uint sleeping;  // workers that need to be woken
  atomic_bool caller_sleeps;
  pthread_mutex_t lock;
  pthread_cond_t wake, done;
  worker workers[];
};

static inline void relax(unsigned i) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
  if (i > 500 && i % 64 == 0)
    sched_yield();  // there may be more threads than cores: let the others finish
}

// Takes part `part` of job `epoch` if nobody has it, and runs it.
static void try_part(itg_pool *p, unsigned epoch, uint32_t part, itg_run_fn run,
                     const itg_call *call, uint32_t parts) {
  unsigned last = atomic_load_explicit(&p->claimed[part].job, memory_order_relaxed);
  if ((int)(last - epoch) >= 0 ||
      !atomic_compare_exchange_strong(&p->claimed[part].job, &last, epoch))
    return;
  itg_words words = run(call, part, parts);
  if (words) atomic_store(&p->words, words);
  if (atomic_fetch_sub(&p->left, 1) == 1 && atomic_load(&p->caller_sleeps)) {
    pthread_mutex_lock(&p->lock);
    pthread_cond_signal(&p->done);
    pthread_mutex_unlock(&p->lock);
  }
}

static void wait_for_job(itg_pool *p, unsigned seen) {
  for (unsigned i = 0; i < SPINS; i++) {
    if (atomic_load_explicit(&p->epoch, memory_order_acquire) != seen) return;
    relax(i);
  }
  pthread_mutex_lock(&p->lock);
  atomic_fetch_add(&p->sleeping,
                   1);  // sequentially consistent: the caller sees it, or we see its epoch
  while (atomic_load(&p->epoch) == seen) pthread_cond_wait(&p->wake, &p->lock);
  atomic_fetch_sub(&p->sleeping, 1);
  pthread_mutex_unlock(&p->lock);
}

static void *work(void *arg) {
  const worker *w = arg;
  itg_pool *p = w->pool;
  for (unsigned seen = 0;;) {
    wait_for_job(p, seen);
    seen = atomic_load(&p->epoch);
    if (atomic_load(&p->stop)) return NULL;
    itg_run_fn run = atomic_load_explicit(&p->run, memory_order_relaxed);
    const itg_call *call = atomic_load_explicit(&p->call, memory_order_relaxed);
    uint32_t parts = atomic_load_explicit(&p->parts, memory_order_relaxed);
    for (uint32_t k = 0; k < parts; k++) try_part(p, seen, (w->part + k) % parts, run, call, parts);
  }
}

static void start_job(itg_pool *p) {
  atomic_fetch_add(&p->epoch, 1);
  if (!atomic_load(&p->sleeping)) return;
  pthread_mutex_lock(&p->lock);
  pthread_cond_broadcast(&p->wake);
  pthread_mutex_unlock(&p->lock);
}

static itg_words run_job(itg_pool *p, itg_run_fn run, const itg_call *call, uint32_t parts) {
  unsigned epoch = atomic_load_explicit(&p->epoch, memory_order_relaxed) + 1;
  atomic_store_explicit(&p->run, run, memory_order_relaxed);
  atomic_store_explicit(&p->call, call, memory_order_relaxed);
  atomic_store_explicit(&p->parts, parts, memory_order_relaxed);
  atomic_store_explicit(&p->words, NULL, memory_order_relaxed);
  atomic_store_explicit(&p->left, parts, memory_order_relaxed);
  for (uint32_t k = parts; k < p->threads; k++)
    atomic_store_explicit(&p->claimed[k].job, epoch, memory_order_relaxed);
  start_job(p);
  for (uint32_t k = 0; k < parts; k++) try_part(p, epoch, k, run, call, parts);
  for (unsigned i = 0; i < SPINS && atomic_load_explicit(&p->left, memory_order_acquire); i++)
    relax(i);
  if (atomic_load(&p->left)) {
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->caller_sleeps, true);
    while (atomic_load(&p->left)) pthread_cond_wait(&p->done, &p->lock);
    atomic_store(&p->caller_sleeps, false);
    pthread_mutex_unlock(&p->lock);
  }
  return atomic_load(&p->words);
}

static unsigned ready(void) { return 2 * itg_forks() + 1; }  // the value of `started`

itg_words itg_pool_run(itg_pool *p, itg_run_fn run, const itg_call *call, uint32_t parts) {
  if (!p->shared) return run_job(p, run, call, parts);
  if (atomic_load_explicit(&p->started, memory_order_acquire) != ready() ||
      atomic_exchange_explicit(&p->taken, true, memory_order_acquire)) {
    itg_words words = NULL;  // another session has the threads, or starts them
    for (uint32_t k = 0; k < parts; k++) {
      itg_words said = run(call, k, parts);
      if (said) words = said;
    }
    return words;
  }
  itg_words words = run_job(p, run, call, parts);
  atomic_store_explicit(&p->taken, false, memory_order_release);
  return words;
}

static itg_words arrive(const itg_call *call, uint32_t part,
                        uint32_t parts) {  // and wait until all have
  atomic_uint *here = call->scratch;
  atomic_fetch_add(here, 1);
  while (atomic_load(here) < parts) sched_yield();
  return NULL;
}

// ---- fork ---------------------------------------------------------------------------------------
static atomic_uint forks;
static void count_fork(void) { atomic_fetch_add(&forks, 1); }
static void watch_forks(void) { pthread_atfork(NULL, NULL, count_fork); }

unsigned itg_forks(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_forks);
  return atomic_load_explicit(&forks, memory_order_relaxed);
}

static bool pin(const itg_pool *p, const worker *w) {
#if defined(__linux__)
  if (!p->n_cpus) return true;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(p->cpus[(w->part - 1) % p->n_cpus], &set);
#if defined(__ANDROID__)  // its C library has the other function for all releases
  return !sched_setaffinity(pthread_gettid_np(w->thread), sizeof set, &set);
#else
  return !pthread_setaffinity_np(w->thread, sizeof set, &set);
#endif
#else
  return !p->n_cpus;
#endif
}

// Starts the workers, or as many as the system allows. Every field is set anew, because a parent's
// worker may have held the lock when its process was forked. `started` comes last: sessions of a
// shared pool that run meanwhile look at it.
static void start_workers(itg_pool *p) {
  atomic_init(&p->epoch, 0);
  atomic_init(&p->stop, false);
  atomic_init(&p->taken, false);
  atomic_init(&p->sleeping, 0);
  atomic_init(&p->caller_sleeps, false);
  p->n_workers = p->unpinned = 0;
  for (uint32_t k = 0; k < p->threads; k++) atomic_init(&p->claimed[k].job, 0);
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->wake, NULL);
  pthread_cond_init(&p->done, NULL);
  for (; p->n_workers < p->threads - 1; p->n_workers++) {
    worker *w = &p->workers[p->n_workers];
    *w = (worker){.pool = p, .part = p->n_workers + 1};
    if (pthread_create(&w->thread, NULL, work, w)) break;
    if (!pin(p, w)) p->unpinned++;
  }
  atomic_uint here = 0;  // all threads are up when this job is done: starting a thread allocates
  const itg_call call = {.scratch = &here};
  run_job(p, arrive, &call, p->n_workers + 1);
  atomic_store_explicit(&p->started, ready(), memory_order_release);
}

itg_pool *itg_pool_start(const itg_pool_options *o, bool shared) {
  const uint64_t size = itg_align(sizeof(itg_pool) + (o->threads - 1) * sizeof(worker));
  const uint64_t cpus = itg_align(o->n_cpus * sizeof(uint32_t));
  itg_pool *p = aligned_alloc(ITG_ALIGN, size + o->threads * sizeof(claim) + cpus);
  if (!p) return NULL;
  *p = (itg_pool){.threads = o->threads, .n_cpus = o->n_cpus, .shared = shared};
  p->claimed = (claim *)(void *)((uint8_t *)p + size);
  uint32_t *listed = (uint32_t *)(void *)((uint8_t *)p + size + o->threads * sizeof(claim));
  for (uint32_t i = 0; i < o->n_cpus; i++) listed[i] = o->cpus[i];
  p->cpus = listed;
  start_workers(p);
  if (p->n_workers == o->threads - 1) return p;
  itg_pool_destroy(p);
  return NULL;
}

itg_status itg_pool_create(const itg_pool_options *options, itg_pool **out, itg_error *e) {
  itg_pool_options o = options ? *options : (itg_pool_options){0};
  if (out) *out = NULL;
  if (!out) return itg_fail(e, ITG_BAD_INPUT, "pool is NULL");
  if (o.threads > ITG_MAX_THREADS)
    return itg_fail(e, ITG_BAD_INPUT, "%u threads are more than %u", o.threads, ITG_MAX_THREADS);
  if (!o.cpus) o.n_cpus = 0;
  for (uint32_t i = 0; i < o.n_cpus; i++)
    if (o.cpus[i] >= ITG_MAX_CPUS)
      return itg_fail(e, ITG_BAD_INPUT, "CPU %u does not exist; numbers are below %u", o.cpus[i],
                      ITG_MAX_CPUS);
  if (!o.threads) o.threads = 1;
  itg_forks();
  itg_pool *p = itg_pool_start(&o, true);
  if (!p) return itg_fail(e, ITG_NO_MEMORY, "cannot start %u threads", o.threads);
  if (p->unpinned) {
    itg_pool_destroy(p);
#if defined(__linux__)
    return itg_fail(e, ITG_BAD_INPUT,
                    "a thread cannot be pinned: one of the CPUs does not exist, or this process "
                    "may not use it; name others, or leave cpus out");
#else
    return itg_fail(e, ITG_UNSUPPORTED, "this system does not pin threads to CPUs; leave cpus out");
#endif
  }
  *out = p;
  return ITG_OK;
}

uint32_t itg_pool_threads(const itg_pool *p) { return p->threads; }

// A child goes on with fewer workers if it cannot start all: the caller computes the other parts.
// If two sessions of a shared pool run at once, one of them starts the workers, and the other one
// computes alone until they are there.
void itg_pool_after_fork(itg_pool *p) {
  if (!p) return;
  unsigned was = atomic_load_explicit(&p->started, memory_order_acquire);
  if (was / 2 != itg_forks() && atomic_compare_exchange_strong(&p->started, &was, ready() - 1))
    start_workers(p);
}

void itg_pool_destroy(itg_pool *p) {
  if (!p) return;
  if (atomic_load(&p->started) == ready()) {  // else the workers are the parent's
    atomic_store(&p->stop, true);
    start_job(p);
    for (uint32_t i = 0; i < p->n_workers; i++) pthread_join(p->workers[i].thread, NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
  }
  free(p);
}
