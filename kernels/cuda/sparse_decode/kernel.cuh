// FP8 sparse decode: split-KV parts over the planned queries; and the same keys for prefill, one query after the other.
#pragma once

#include "../attention/dequantize.cuh"
#include "../attention/split.cuh"

namespace mla {

// A part of few blocks takes as long as the way from its first key to its result, and group 1 scores its block ahead. A part of many blocks
// is bound by conversion, which waits least for its buffers if they are released at once. Without a pair, a CTA converts more slowly
// than it computes, and both groups score ahead. Ratios to FlashMLA's time on one H200 in the three orders, 128 heads: B=4 1.21, 1.27, 1.25;
// B=128 0.99, 0.96, 0.98; 64 heads, B=128: 1.07, 1.06, 1.02. Converted keys are written by the generic proxy, so all have the fence.
enum class Length { kFewBlocks, kManyBlocks };
template <bool kPair, Length kLength>
using Fp8Order = std::conditional_t<
    !kPair, Order<Ahead::kLeftHalf, Ahead::kLeftHalf, Release::kBehindTile, Handover::kHalvesValuesFirst, /* fence */ true>,
    std::conditional_t<kLength == Length::kFewBlocks, Order<Ahead::kNothing, Ahead::kAll, Release::kBehindTile, Handover::kHalves, true>,
                       Order<Ahead::kNothing, Ahead::kNothing, Release::kAtOnce, Handover::kHalvesValuesFirst, true>>>;
template <bool kPair, Length kLength>
using Fp8Config = Config<Lookup::kIndices, Storage::kFp8, __nv_bfloat16, kPair, Fp8Order<kPair, kLength>>;

template <bool kPair, Length kLength>
__global__ void __launch_bounds__(kThreads, 1) flash_fwd_splitkv_mla_fp8_sparse_kernel(const __grid_constant__ Problem problem) {
  attend<Fp8Config<kPair, kLength>, Dequantize<Fp8Config<kPair, kLength>>>(problem);
}

}  // namespace mla
