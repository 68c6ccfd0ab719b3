// The thread pool of a session: workers that wait for a step, do their share and report. They spin for a while before
// they sleep, because the next step usually comes within microseconds.
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "runtime.h"

enum { SPINS = 4000 };  // some tens of microseconds

typedef struct worker {
  itg_pool *pool;
  uint32_t part;
  pthread_t thread;
} worker;

struct itg_pool {
  // the current job; written before `epoch` moves on, read after
  itg_run_fn run;
  const itg_call *call;
  uint32_t parts;
  _Alignas(64) atomic_uint epoch;  // counts jobs
  _Alignas(64) atomic_uint left;   // workers that have not finished the current one
  atomic_uint sleeping;            // workers that need to be woken
  atomic_bool caller_sleeps, stop;
  _Atomic(itg_words) words;
  pthread_mutex_t lock;
  pthread_cond_t wake, done;
  uint32_t n_workers;
  worker workers[];
};

static inline void pause_cpu(unsigned i) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
  if (i % 1024 == 1023) sched_yield();  // more threads than cores: let the others finish
}

static void wait_for_job(itg_pool *p, unsigned seen) {
  for (unsigned i = 0; i < SPINS; i++) {
    if (atomic_load_explicit(&p->epoch, memory_order_acquire) != seen) return;
    pause_cpu(i);
  }
  pthread_mutex_lock(&p->lock);
  atomic_fetch_add(&p->sleeping, 1);  // sequentially consistent: the caller sees it, or we see its epoch
  while (atomic_load(&p->epoch) == seen) pthread_cond_wait(&p->wake, &p->lock);
  atomic_fetch_sub(&p->sleeping, 1);
  pthread_mutex_unlock(&p->lock);
}

static void *work(void *arg) {
  const worker *w = arg;
  itg_pool *p = w->pool;
  for (unsigned seen = 0;; seen++) {
    wait_for_job(p, seen);
    if (atomic_load(&p->stop)) return NULL;
    if (w->part < p->parts) {
      itg_words words = p->run(p->call, w->part, p->parts);
      if (words) atomic_store(&p->words, words);
    }
    if (atomic_fetch_sub(&p->left, 1) == 1 && atomic_load(&p->caller_sleeps)) {
      pthread_mutex_lock(&p->lock);
      pthread_cond_signal(&p->done);
      pthread_mutex_unlock(&p->lock);
    }
  }
}

static void start_job(itg_pool *p) {
  atomic_fetch_add(&p->epoch, 1);
  if (!atomic_load(&p->sleeping)) return;
  pthread_mutex_lock(&p->lock);
  pthread_cond_broadcast(&p->wake);
  pthread_mutex_unlock(&p->lock);
}

itg_words itg_pool_run(itg_pool *p, itg_run_fn run, const itg_call *call, uint32_t parts) {
  p->run = run;
  p->call = call;
  p->parts = parts;
  atomic_store_explicit(&p->words, NULL, memory_order_relaxed);
  atomic_store_explicit(&p->left, p->n_workers, memory_order_relaxed);  // all of them, so that none sees half a job
  start_job(p);
  itg_words words = run(call, 0, parts);
  for (unsigned i = 0; i < SPINS; i++) {
    if (!atomic_load_explicit(&p->left, memory_order_acquire)) break;
    pause_cpu(i);
  }
  if (atomic_load(&p->left)) {
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->caller_sleeps, true);
    while (atomic_load(&p->left)) pthread_cond_wait(&p->done, &p->lock);
    atomic_store(&p->caller_sleeps, false);
    pthread_mutex_unlock(&p->lock);
  }
  return words ? words : atomic_load(&p->words);
}

static itg_words nothing(const itg_call *call, uint32_t part, uint32_t parts) { return NULL; }

itg_pool *itg_pool_create(uint32_t threads) {
  uint32_t n = threads - 1;
  itg_pool *p = aligned_alloc(ITG_ALIGN, itg_align(sizeof *p + n * sizeof *p->workers));
  if (!p) return NULL;
  *p = (itg_pool){.parts = 0};
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->wake, NULL);
  pthread_cond_init(&p->done, NULL);
  for (; p->n_workers < n; p->n_workers++) {
    worker *w = &p->workers[p->n_workers];
    *w = (worker){.pool = p, .part = p->n_workers + 1};
    if (pthread_create(&w->thread, NULL, work, w)) {
      itg_pool_destroy(p);
      return NULL;
    }
  }
  itg_pool_run(p, nothing, NULL, threads);  // all of them are up when this returns: starting a thread allocates
  return p;
}

void itg_pool_destroy(itg_pool *p) {
  if (!p) return;
  atomic_store(&p->stop, true);
  start_job(p);
  for (uint32_t i = 0; i < p->n_workers; i++) pthread_join(p->workers[i].thread, NULL);
  pthread_cond_destroy(&p->done);
  pthread_cond_destroy(&p->wake);
  pthread_mutex_destroy(&p->lock);
  free(p);
}
