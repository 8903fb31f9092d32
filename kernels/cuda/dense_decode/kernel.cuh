// Dense decode over a paged cache (block tables, causal), and 16-head decode over one-token pages: split-KV parts over whole contexts.
// Pages that hold whole blocks of keys come in boxes by the TMA, others row by row.
#pragma once

#include "../attention/gather.cuh"
#include "../attention/pages.cuh"

namespace mla {

// Keys come from device memory. Group 1 has the time to score its whole block while it waits for the other group's probabilities; group 0
// takes probabilities before it waits for keys. With 128 heads, B=128 of 4096 keys, ratio to FlashMLA's time on one H200: 1.02; with group 1
// scoring the left half ahead 1.04, with both groups doing so 1.05, with none and buffers released at once 1.07.
using DenseOrder = Order<Ahead::kNothing, Ahead::kAll, Release::kBehindTile, Handover::kHalvesValuesFirst, /* fence */ false>;
template <class Element>
using DenseConfig = Config<Lookup::kPages, Storage::kRows, Element, false, DenseOrder>;
// Scores start with a page's first tile that arrives: ragged contexts 1.04 instead of 1.05.
template <class Element>
using PagesConfig = Config<Lookup::kPages, Storage::kRows, Element, false, DenseOrder, Planned::kPerhaps, /* tile barriers */ true>;
using ListConfig = Config<Lookup::kList, Storage::kSplitRows, __nv_bfloat16, false, DenseOrder>;

template <class Element>
__global__ void __launch_bounds__(kThreads, 1) flash_fwd_splitkv_mla_kernel(const __grid_constant__ Problem problem) {
  attend<DenseConfig<Element>, Gather<DenseConfig<Element>>>(problem);
}

// kShared: several row blocks of a query read the same pages, at about the same time; L2 may evict those first. With 128 heads ragged contexts
// take 1.03 instead of 1.04. With 16 heads, one row block, the hint would cost time: B=128 of 4096 keys 1.00 instead of 0.97.
template <class Element, bool kShared>
__global__ void __launch_bounds__(kThreads, 1) flash_fwd_splitkv_mla_pages_kernel(const __grid_constant__ Problem problem,
                                                                                  const __grid_constant__ CUtensorMap map) {
  attend<PagesConfig<Element>, Pages<PagesConfig<Element>, /* evict first */ kShared>>(problem, &map);
}

__global__ void __launch_bounds__(kThreads, 1) flash_fwd_splitkv_mla_list_kernel(const __grid_constant__ Problem problem) {
  attend<ListConfig, Gather<ListConfig>>(problem);
}

}  // namespace mla
