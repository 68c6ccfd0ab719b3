// Max pooling of 8-bit images, channels last: whole pixels at a time, which the compiler makes vectors of.
#include "tile.h"
#include "window.h"

itg_words itg_pool_of(const itg_call *call, itg_window *w, itg_tensor *out);

enum { RUN = 16 };  // channels at a time; the last run of a pixel overlaps the one before

// The window on n channels, of which RUN are one vector.
#define POOL(name, type, lowest)                                                                               \
  typedef type name##_run __attribute__((vector_size(RUN), aligned(1), may_alias));                            \
  static void name(const itg_window *w, int64_t channels, const type *x, const int64_t *from, type *y) {       \
    int64_t begin[ITG_AXES], end[ITG_AXES];                                                                    \
    for (int d = 0; d < ITG_AXES; d++) itg_taps_inside(w, d, from[d], &begin[d], &end[d]);                     \
    const int64_t pitch = w->dilation[2] * channels;                                                           \
    if (channels < RUN) memset(y, lowest, (size_t)channels);                                                   \
    for (int64_t c = 0; c < channels; c += RUN) {                                                              \
      const int64_t at = channels < RUN ? 0 : c + RUN > channels ? channels - RUN : c;                         \
      name##_run best;                                                                                         \
      memset(&best, lowest, sizeof best);                                                                      \
      for (int64_t k = begin[0]; k < end[0]; k++)                                                              \
        for (int64_t j = begin[1]; j < end[1]; j++) {                                                          \
          const int64_t line = (from[0] + k * w->dilation[0]) * w->in[1] + from[1] + j * w->dilation[1];       \
          const type *pixel = x + (line * w->in[2] + from[2] + begin[2] * w->dilation[2]) * channels + at;     \
          for (int64_t l = begin[2]; l < end[2]; l++, pixel += pitch) {                                        \
            if (channels >= RUN) {                                                                             \
              const name##_run here = *(const name##_run *)pixel, more = (name##_run)(here > best);            \
              best = (here & more) | (best & ~more);                                                           \
            } else {                                                                                           \
              for (int64_t i = 0; i < channels; i++) y[i] = pixel[i] > y[i] ? pixel[i] : y[i];                 \
            }                                                                                                  \
          }                                                                                                    \
        }                                                                                                      \
      if (channels >= RUN) *(name##_run *)(y + at) = best;                                                     \
    }                                                                                                          \
  }                                                                                                            \
  static itg_words name##_all(const itg_call *call, uint32_t part, uint32_t parts) {                           \
    itg_window w;                                                                                              \
    itg_tensor out;                                                                                            \
    itg_pool_of(call, &w, &out);                                                                               \
    if (itg_empty(&out)) return NULL;                                                                          \
    const int64_t channels = out.shape[out.rank - 1];                                                          \
    int64_t i, to;                                                                                             \
    itg_share(out.shape[0] * itg_places(w.out), 1, part, parts, &i, &to);                                      \
    for (; i < to; i++) {                                                                                      \
      const int64_t from[ITG_AXES] = {i / w.out[2] / w.out[1] % w.out[0] * w.stride[0] - w.before[0],          \
                                      i / w.out[2] % w.out[1] * w.stride[1] - w.before[1],                     \
                                      i % w.out[2] * w.stride[2] - w.before[2]};                               \
      const type *x = (const type *)call->in[0]->data + i / itg_places(w.out) * itg_places(w.in) * channels;   \
      name(&w, channels, x, from, (type *)call->out[0]->data + i * channels);                                  \
    }                                                                                                          \
    return NULL;                                                                                               \
  }

POOL(pool_u8, uint8_t, 0)
POOL(pool_i8, int8_t, -128)

ITG_FN(pool, u8) { return pool_u8_all(call, part, parts); }
ITG_FN(pool, i8) { return pool_i8_all(call, part, parts); }
