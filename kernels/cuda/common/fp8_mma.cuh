// FP8 warpgroup MMA: 64 x kN over a slice of 128 bytes of K, both operands in shared memory.
#pragma once

#include "ptx.cuh"

#include <cute/arch/mma_sm90_gmma_ext.hpp>

namespace common {

template <int kN>
struct Atom;
#define GEMM_ATOM(N)                                                       \
  template <>                                                              \
  struct Atom<N> {                                                         \
    using Type = cute::SM90::GMMA::MMA_64x##N##x32_F32E4M3E4M3_SS_TN<>;    \
  };
GEMM_ATOM(8)
GEMM_ATOM(16)
GEMM_ATOM(32)
GEMM_ATOM(64)
GEMM_ATOM(112)
GEMM_ATOM(128)
GEMM_ATOM(144)
GEMM_ATOM(192)
GEMM_ATOM(256)
#undef GEMM_ATOM

// Starts d = the product of one slice: 64 rows of a times kN rows of b, given by the low words of their descriptors. Commits it as one group.
template <int kN>
__device__ __forceinline__ void multiply_words(float (&d)[kN / 2], uint32_t a, uint32_t b) {
  constexpr uint64_t kHigh = uint64_t(1024 >> 4 | 1 << 30) << 32;  // groups of rows are 1024 bytes apart; 128-byte swizzle
  mma_begin();
#pragma unroll
  for (int k = 0; k < 4; ++k)  // 32 bytes of a row at a time
    multiply_tiles<typename Atom<kN>::Type>(d, kHigh | (a + 2 * k), kHigh | (b + 2 * k), k > 0);
  mma_commit();
}

}  // namespace common
