// Sums of products of bytes for convolutions, compiled once per instruction set.
#pragma once
#include <stdint.h>

enum { ITG_CV18XX_OUTPUTS = 8, ITG_CV18XX_SLACK = 256 };  // at once; bytes read behind the planes

typedef struct itg_cv18xx_products {
  const uint8_t *x;                      // planes of four interleaved channels
  const int64_t *at;                     // of each step in x, in bytes
  const uint8_t *w[ITG_CV18XX_OUTPUTS];  // of each output: four i8 for each step
  int64_t steps, outputs, run;           // run: neighbouring results
  int32_t less;   // what each byte of x is above the number that it stands for
  int32_t *sums;  // [outputs][pitch]
  int64_t pitch;  // at least `run` rounded up to 64
} itg_cv18xx_products;

#define CV18XX_FORM(isa) void itg_cv18xx_multiply_##isa(const itg_cv18xx_products *work);
CV18XX_FORM(scalar)
CV18XX_FORM(avx2)
CV18XX_FORM(avx512)
CV18XX_FORM(avx512vnni)
