// Tiles of sums of products; included once for integers and once for floats.
// BLOCK: outputs of a tile. SUMS: accumulators of a sum (2: even and odd taps). y is NUMBER.
typedef float floats __attribute__((vector_size(PIXELS * sizeof(float))));

INLINE void tile(const itg_bm_sums *s, const float *x, const float *w, NUMBER *y, int count,
                 int64_t left, const int block) {
  totals total[BLOCK];
  for (int o = 0; o < block; o++) total[o] = (totals){0};
  for (int64_t first = 0; first < s->taps; first += s->exact) {
    int64_t last = first + s->exact < s->taps ? first + s->exact : s->taps;
    floats acc[BLOCK][SUMS];
    for (int o = 0; o < block; o++)
      for (int i = 0; i < SUMS; i++) acc[o][i] = (floats){0};
    if (SUMS == 2) {
      for (int o = 0; o < count; o++) {
        size_t at = (size_t)(y - (NUMBER *)s->y + o * s->pixels);
        if (s->even) memcpy(&acc[o][0], s->even + at, (size_t)left * sizeof(float));
        if (s->odd) memcpy(&acc[o][SUMS - 1], s->odd + at, (size_t)left * sizeof(float));
      }
    }
    for (int64_t k = first; k < last; k += SUMS) {
      for (int i = 0; i < SUMS; i++) {
        if (k + i >= last) break;
        floats v;
        memcpy(&v, x + s->offsets[k + i], sizeof v);
        for (int o = 0; o < block; o++) acc[o][i] += v * w[(k + i) * block + o];
      }
    }
    for (int o = 0; o < block; o++) total[o] += FINISH(acc[o]);
  }
  for (int o = 0; o < count; o++)
    memcpy(y + o * s->pixels, &total[o], (size_t)left * sizeof(NUMBER));
}

INLINE void groups(const itg_bm_sums *s, const int block) {
  for (int64_t g = 0; g < s->groups; g++) {
    const float *w = s->w + g * s->w_group;
    NUMBER *y = (NUMBER *)s->y + g * s->outputs * s->pixels;
    for (int64_t o = 0; o < s->outputs; o += block) {
      int count = (int)(s->outputs - o < block ? s->outputs - o : block);
      for (int64_t p = 0; p < s->pixels; p += PIXELS) {
        int64_t left = s->pixels - p < PIXELS ? s->pixels - p : PIXELS;
        tile(s, s->x + g * s->x_group + p, w + o * s->taps, y + o * s->pixels + p, count, left,
             block);
      }
    }
  }
}
