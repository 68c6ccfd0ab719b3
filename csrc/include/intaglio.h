// Intaglio runtime: the only public header.
#pragma once
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define ITG_API __attribute__((visibility("default")))
#else
#define ITG_API
#endif

#define ITG_MAX_RANK 8

enum itg_dtype {  // the codes of intaglio/dtypes.py; a test compares them
  ITG_F32 = 1, ITG_F64, ITG_F16, ITG_BF16, ITG_I8, ITG_I16, ITG_I32, ITG_I64, ITG_U8, ITG_U16, ITG_U32, ITG_U64,
  ITG_BOOL, ITG_I4, ITG_U4, ITG_F8E4M3FN, ITG_F8E4M3FNUZ, ITG_F8E5M2, ITG_F8E5M2FNUZ, ITG_F4E2M1FN, ITG_F8E8M0FNU,
  ITG_I2, ITG_U2, ITG_DTYPE_LAST = ITG_U2,
};

enum itg_isa {  // bits; a kernel runs where all the bits that it needs are there
  ITG_ISA_scalar = 0,
  ITG_ISA_avx2 = 1,    // AVX2, FMA, F16C
  ITG_ISA_avx512 = 2,  // F, BW, DQ, VL; comes with avx2
  ITG_ISA_avx512vnni = 4,
  ITG_ISA_avx512bf16 = 8,
  ITG_ISA_neon = 256,
  ITG_ISA_dotprod = 512,
  ITG_ISA_rvv = 4096,
};

ITG_API uint32_t itg_cpu_isa(void);  // the enum itg_isa bits of this CPU
