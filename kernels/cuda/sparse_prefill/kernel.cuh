// Sparse prefill: persistent CTAs, one query and 64 heads at a time. The CTAs of a query's row blocks are neighbours, and meet in L2. Queries
// too few to occupy the GPU are divided into equal parts of their keys, one for each CTA.
#pragma once

#include "../attention/gather.cuh"

namespace mla {

// The order depends on where the keys are once a launch has warmed up. Rows that fit into L2 arrive soon, and both groups score ahead. Rows
// from device memory arrive late, so group 0 takes the other group's probabilities, which frees a buffer, before it waits for its next
// keys. 4096 queries of 128 heads, ratio to FlashMLA's time on one H200: with 128K keys (151 MB) 0.99 instead of 1.00, with 8K (9 MB) 1.02 instead of 0.99.
enum class Source { kL2, kMemory };
template <Source kSource>
using PrefillOrder = Order<kSource == Source::kL2 ? Ahead::kLeftHalf : Ahead::kNothing, Ahead::kLeftHalf, Release::kBehindTile,
                           Handover::kHalvesValuesFirst, /* fence */ false>;
template <Source kSource, bool kDivided>
using PrefillConfig = Config<Lookup::kIndices, Storage::kRows, __nv_bfloat16, false, PrefillOrder<kSource>,
                             kDivided ? Planned::kEqual : Planned::kNever>;

template <Source kSource, bool kDivided = false>
__global__ void __launch_bounds__(kThreads, 1) sparse_attn_fwd_kernel(const __grid_constant__ Problem problem) {
  attend<PrefillConfig<kSource, kDivided>, Gather<PrefillConfig<kSource, kDivided>>>(problem);
}

}  // namespace mla
