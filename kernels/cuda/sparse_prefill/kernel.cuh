// Sparse prefill: persistent CTAs, one query and 64 heads at a time. The CTAs of a query's row blocks are neighbours, and meet in L2.
#pragma once

#include "../attention/gather.cuh"

namespace mla {

#ifndef ATT_ORDER
#define ATT_ORDER Order<Ahead::kNothing, Ahead::kNothing, Release::kBehindScores, false, false, true>
#endif
using PrefillConfig = Config<Lookup::kIndices, Storage::kRows, __nv_bfloat16, false, ATT_ORDER, false>;

__global__ void __launch_bounds__(kThreads, 1) sparse_attn_fwd_kernel(const __grid_constant__ Problem problem) {
  attend<PrefillConfig, Gather<PrefillConfig>>(problem);
}

}  // namespace mla
