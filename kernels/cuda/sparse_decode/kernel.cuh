// FP8 sparse decode: split-KV parts over the planned queries; and the same keys for prefill, one query after the other.
#pragma once

#include "../attention/dequantize.cuh"
#include "../attention/split.cuh"

namespace mla {

#ifndef ATT_ORDER
#define ATT_ORDER Order<Ahead::kNothing, Ahead::kNothing, Release::kBehindScores, false, false, true>
#endif

template <bool kPair>
using Fp8Config = Config<Lookup::kIndices, Storage::kFp8, __nv_bfloat16, kPair, ATT_ORDER>;

template <bool kPair>
__global__ void __launch_bounds__(kThreads, 1) flash_fwd_splitkv_mla_fp8_sparse_kernel(const __grid_constant__ Problem problem) {
  attend<Fp8Config<kPair>, Dequantize<Fp8Config<kPair>>>(problem);
}

}  // namespace mla
