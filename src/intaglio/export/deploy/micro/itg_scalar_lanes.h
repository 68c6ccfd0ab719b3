// Four sums of a depthwise convolution in four registers.
#ifndef ITG_SCALAR_LANES_H
#define ITG_SCALAR_LANES_H

typedef struct {
  int32_t of[4];
} itg_lanes;

ITG_INLINE itg_lanes itg_lanes_start(const int32_t *bias, int n) {
  itg_lanes s = {{0, 0, 0, 0}};
  ITG_UNROLL
  for (int i = 0; i < n; i++) s.of[i] = bias[i];
  return s;
}

ITG_INLINE itg_lanes itg_lanes_sum(const itg_lanes *a, const itg_lanes *b) {
  itg_lanes s = *a;
  ITG_UNROLL
  for (int i = 0; i < 4; i++) s.of[i] += b->of[i];
  return s;
}

ITG_INLINE void itg_lanes_finish(const itg_lanes *s, int n, const float *scale, int32_t per,
                                 int32_t zero, uint32_t flip, uint32_t exact, int8_t *y) {
  ITG_UNROLL
  for (int i = 0; i < n; i++) {
    y[i] = (int8_t)((uint32_t)itg_requant(s->of[i], scale[i * per], zero, exact) ^ flip);
  }
}

#endif
