// Dense decode over a paged cache (block tables, causal), and 16-head decode over one-token pages: split-KV parts over whole contexts.
#pragma once

#include "../attention/gather.cuh"
#include "../attention/pages.cuh"

namespace mla {

#ifndef ATT_ORDER
#define ATT_ORDER Order<Ahead::kNothing, Ahead::kNothing, Release::kBehindScores, false, false, true>
#endif

template <class Element>
using DenseConfig = Config<Lookup::kPages, Storage::kRows, Element, false, ATT_ORDER>;
template <class Element, bool kPair>
using PagesConfig = Config<Lookup::kPages, Storage::kRows, Element, kPair, ATT_ORDER>;
using ListConfig = Config<Lookup::kList, Storage::kSplitRows, __nv_bfloat16, false, ATT_ORDER>;

template <class Element>
__global__ void __launch_bounds__(kThreads, 1) flash_fwd_splitkv_mla_kernel(const __grid_constant__ Problem problem) {
  attend<DenseConfig<Element>, Gather<DenseConfig<Element>>>(problem);
}

template <class Element, bool kPair>
__global__ void __launch_bounds__(kThreads, 1) flash_fwd_splitkv_mla_pages_kernel(const __grid_constant__ Problem problem,
                                                                                  const __grid_constant__ CUtensorMap map) {
  attend<PagesConfig<Element, kPair>, Pages<PagesConfig<Element, kPair>>>(problem, &map);
}

__global__ void __launch_bounds__(kThreads, 1) flash_fwd_splitkv_mla_list_kernel(const __grid_constant__ Problem problem) {
  attend<ListConfig, Gather<ListConfig>>(problem);
}

}  // namespace mla
