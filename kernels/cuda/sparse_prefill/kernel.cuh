// Sparse prefill: persistent CTAs, one query and 64 heads at a time, or a cluster of two for up to 128 heads.
#pragma once

#include "../common/gather.cuh"

namespace mla {

template <bool kPair>
using PrefillConfig = Config<Lookup::kIndices, Storage::kRows, __nv_bfloat16, kPair>;

template <bool kPair>
__global__ void __launch_bounds__(kThreads, 1) sparse_attn_fwd_kernel(const __grid_constant__ Problem problem) {
  attend<PrefillConfig<kPair>, Gather<PrefillConfig<kPair>>>(problem);
}

}  // namespace mla
