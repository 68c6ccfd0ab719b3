// Kernels for int8 networks on small cores: no heap, no stdio, no threads, no globals.
//
// Images are channels-last. A tensor of u8 is read as i8 with the top bit flipped: `flip` is 0x80
// for u8 and 0 for i8, and zero points are those of the i8 tensor. A result is
// clamp(round_half_even(float(sum) * scale) + zero), with sums of 32 bits.
#ifndef ITG_MICRO_H
#define ITG_MICRO_H

#include <stdint.h>

#define ITG_RANK 6

typedef struct {
  int32_t n, h, w, c;         // images, input height, width and channels
  int32_t oh, ow, oc;         // output height, width and channels
  int32_t kh, kw, sh, sw;     // kernel, stride
  int32_t top, left, dh, dw;  // padding before, dilation
  int32_t groups;             //
  int32_t x_zero, y_zero;     // zero points as i8
  uint32_t x_flip, y_flip;    // 0x80 for u8
  uint32_t exact;             // 1: sums and scales have the bounds of itg_requantize_exact
  uint32_t floats;            // 1: the result is float(sum) * scale
  uint32_t pairs;             // 1: no weight is -128
  int32_t per;                // 1: a scale per channel, 0: one for all
} itg_window;

// What some convolutions do before they round, or instead: add a tensor of the result's shape (f32
// to f32 results), look up table[clamp(rounded + y_zero, lo, hi) - lo].
typedef struct {
  const void *residual;
  int32_t r_zero;
  uint32_t r_flip;
  float r_scale;
  const uint8_t *table;
  int32_t y_zero, lo, hi;
} itg_more;

// Weights are in the order that deploy writes for the chosen form; `w_zero` and `more` may be NULL.
void itg_conv(const itg_window *l, const int8_t *w, const int32_t *bias, const float *scale,
              const int16_t *w_zero, const itg_more *more, const int8_t *x, void *y, void *scratch);
// One window that is the whole image: fully connected layers, for the form DSP.
void itg_dense(const itg_window *l, const int8_t *w, const int32_t *bias, const float *scale,
               const int16_t *w_zero, const int8_t *x, void *y, void *scratch);
// Weights [kh, kw, c]. Scratch: c bytes, then kh * kw pointers.
void itg_depthwise(const itg_window *l, const int8_t *w, const int32_t *bias, const float *scale,
                   const int16_t *w_zero, const int8_t *x, int8_t *y, void *scratch);
// The same for 3x3 windows with stride 1 or, along lines, 2, without dilation, in the form DSP.
// Weights [c, 3, 3]. Scratch: lines of a channel as 16 bits.
void itg_planes(const itg_window *l, const int8_t *w, const int32_t *bias, const float *scale,
                const int16_t *w_zero, const int8_t *x, int8_t *y, void *scratch);
void itg_max_pool(const itg_window *l, const int8_t *x, int8_t *y);
void itg_max_pool_floats(const itg_window *l, const float *x, float *y);
// `count_pad`: 1 if padding counts. The mean of `count` numbers is sum * (x_scale / (y_scale *
// count)).
void itg_avg_pool(const itg_window *l, float x_scale, float y_scale, int32_t count_pad,
                  const int8_t *x, int8_t *y);

typedef struct {
  int32_t outer, count, inner;  // x [outer, count, inner]
  int32_t x_zero, y_zero;
  uint32_t x_flip, y_flip;
} itg_axis;

void itg_mean(const itg_axis *l, float factor, const int8_t *x, int8_t *y);
void itg_softmax(const itg_axis *l, const int32_t *table, float y_scale, const int8_t *x,
                 int8_t *y);

typedef struct {
  int32_t shape[ITG_RANK], a_step[ITG_RANK], b_step[ITG_RANK];  // of the result; 0: broadcast
  int32_t a_zero, b_zero, y_zero;
  uint32_t a_flip, b_flip, y_flip;
  float a_scale, b_scale;  // of the sum; of a product only a_scale
} itg_pair;

void itg_add(const itg_pair *l, const int8_t *a, const int8_t *b, int8_t *y);
void itg_mul(const itg_pair *l, const int8_t *a, const int8_t *b, int8_t *y);

void itg_clip(int32_t n, float low, float high, const float *x, float *y);
void itg_lookup(int32_t n, const uint8_t *table, const uint8_t *x, uint8_t *y);
void itg_quantize(int32_t n, float scale, int32_t zero, uint32_t flip, const float *x, int8_t *y);
void itg_dequantize(int32_t n, float scale, int32_t zero, uint32_t flip, const int8_t *x, float *y);

// f32: exponentials, and arithmetic that broadcasts.
enum { ITG_ADD, ITG_SUB, ITG_MUL, ITG_DIV };
typedef struct {
  int32_t shape[ITG_RANK], a_step[ITG_RANK], b_step[ITG_RANK];  // of the result; 0: broadcast
  int32_t kind;
} itg_float_pair;

void itg_softmax_floats(const itg_axis *l, const float *x, float *y);
void itg_sigmoid(int32_t n, const float *x, float *y);
void itg_floats(const itg_float_pair *l, const float *a, const float *b, float *y);

typedef struct {
  int32_t shape[ITG_RANK], x_step[ITG_RANK], y_step[ITG_RANK];  // in bytes
  int32_t size;                                                 // of an element
} itg_moves;

// Copies elements from one set of strides to another: transposes, slices, concats and pads.
void itg_move(const itg_moves *l, const void *x, void *y);
void itg_fill(int32_t n, int32_t value, void *y);

#endif
