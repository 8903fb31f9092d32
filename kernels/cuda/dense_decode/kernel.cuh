// Dense decode over a paged cache (block tables, causal), and 16-head decode over one-token pages: split-KV parts over whole contexts.
#pragma once

#include "../attention/gather.cuh"

namespace mla {

template <class Element>
using DenseConfig = Config<Lookup::kPages, Storage::kRows, Element, false>;
using ListConfig = Config<Lookup::kList, Storage::kSplitRows, __nv_bfloat16, false>;

template <class Element>
__global__ void __launch_bounds__(kThreads, 1) flash_fwd_splitkv_mla_kernel(const __grid_constant__ Problem problem) {
  attend<DenseConfig<Element>, Gather<DenseConfig<Element>>>(problem);
}

__global__ void __launch_bounds__(kThreads, 1) flash_fwd_splitkv_mla_list_kernel(const __grid_constant__ Problem problem) {
  attend<ListConfig, Gather<ListConfig>>(problem);
}

}  // namespace mla
