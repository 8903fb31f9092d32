// FP8 sparse attention for more heads than few_heads.cuh takes: 64 of them are the M of a warpgroup's MMA, for which records become bf16 tiles.
#pragma once

#include "../attention/dequantize.cuh"

namespace mla {

// With a plan, one group scores all blocks, in half the code of the seesaw. Parts of many blocks wait for conversion. Parts of few blocks
// wait for the way from the first key to the result, whose instructions are in no cache. Without a plan, each CTA takes one
// query after the other, by the seesaw. In a pair, conversion then waits least for its buffers if they are released at once; without a pair, a CTA
// converts more slowly than it computes, and both groups score ahead; as Planned::kNever it would spill more registers (ptxas 13.0). Converted
// keys are written by the generic proxy, so all have the fence. docs/log/attention.md has the measurements.
template <bool kPair>
using UnplannedOrder =
    std::conditional_t<kPair, Order<Ahead::kNothing, Ahead::kNothing, Release::kAtOnce, /* fence */ true>,
                       Order<Ahead::kLeftHalf, Ahead::kLeftHalf, Release::kBehindTile, true>>;
template <bool kPair, bool kPlanned>
using Fp8Config = Config<Lookup::kIndices, Storage::kFp8, __nv_bfloat16, kPair, std::conditional_t<kPlanned, OneScorer, UnplannedOrder<kPair>>,
                         kPlanned ? Planned::kAlways : Planned::kPerhaps>;

template <bool kPair, bool kPlanned>
__global__ void __launch_bounds__(kThreads, 1) flash_fwd_splitkv_mla_fp8_sparse_kernel(const __grid_constant__ Problem problem) {
  using C = Fp8Config<kPair, kPlanned>;
  if constexpr (kPlanned)
    attend_with_one_scorer<C, RolledDequantize<C>>(problem);
  else
    attend<C, Dequantize<C>>(problem);
}

}  // namespace mla
