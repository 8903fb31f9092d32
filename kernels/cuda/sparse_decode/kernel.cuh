// FP8 sparse decode: split-KV parts over the planned queries; and the same keys for prefill, one query after the other.
#pragma once

#include "../attention/dequantize.cuh"
#include "../attention/dequantize_rolled.cuh"

namespace mla {

// A part of few blocks takes as long as the way from its first key to its result, and most of its instructions come cold: one group scores
// all blocks, in half the code. A part of many blocks is bound by conversion, which waits least for its buffers if they are released at
// once. Without a pair, a CTA converts more slowly than it computes, and both groups score ahead. Converted keys are written by the generic
// proxy, so all have the fence. docs/attention-log.md has the measurements.
enum class Length { kFewBlocks, kManyBlocks };
template <bool kPair>
using ManyBlocksOrder =
    std::conditional_t<kPair, Order<Ahead::kNothing, Ahead::kNothing, Release::kAtOnce, Handover::kHalvesValuesFirst, /* fence */ true>,
                       Order<Ahead::kLeftHalf, Ahead::kLeftHalf, Release::kBehindTile, Handover::kHalvesValuesFirst, true>>;
template <bool kPair, Length kLength>
using Fp8Order = std::conditional_t<kLength == Length::kFewBlocks, OneScorer, ManyBlocksOrder<kPair>>;
template <bool kPair, Length kLength>
using Fp8Config = Config<Lookup::kIndices, Storage::kFp8, __nv_bfloat16, kPair, Fp8Order<kPair, kLength>,
                         kLength == Length::kFewBlocks ? Planned::kAlways : Planned::kPerhaps>;

template <bool kPair, Length kLength>
__global__ void __launch_bounds__(kThreads, 1) flash_fwd_splitkv_mla_fp8_sparse_kernel(const __grid_constant__ Problem problem) {
  using C = Fp8Config<kPair, kLength>;
  if constexpr (C::Order::kSeesaw)
    attend<C, Dequantize<C>>(problem);
  else
    attend_with_one_scorer<C, RolledDequantize<C>>(problem);
}

}  // namespace mla
