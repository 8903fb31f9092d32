// Dense decode over a paged cache (block tables, causal), and 16-head decode over one-token pages: split-KV parts over whole contexts.
// Pages that hold whole blocks of keys come in boxes by the TMA, others row by row.

#include "../attention/gather.cuh"
#include "../attention/launch.cuh"
#include "../attention/pages.cuh"
#include "../common/tensor_map.cuh"

namespace mla {

// Keys come from device memory. Group 1 has the time to score its whole block while it waits for the other group's probabilities; group 0
// takes probabilities before it waits for keys. With 128 heads, B=128 of 4096 keys, ratio to FlashMLA's time on one H200: 1.02; with group 1
// scoring the left half ahead 1.04, with both groups doing so 1.05, with none and buffers released at once 1.07.
using DenseOrder = Order<Ahead::kNothing, Ahead::kAll, Release::kBehindTile, /* fence */ false>;
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
__global__ void __launch_bounds__(kThreads, 1) flash_fwd_splitkv_mla_kernel_pages(const __grid_constant__ Problem problem,
                                                                                  const __grid_constant__ CUtensorMap map) {
  attend<PagesConfig<Element>, Pages<PagesConfig<Element>, /* evict first */ kShared>>(problem, &map);
}

__global__ void __launch_bounds__(kThreads, 1) flash_fwd_splitkv_mla_kernel_list(const __grid_constant__ Problem problem) {
  attend<ListConfig, Gather<ListConfig>>(problem);
}

// The plan of a step from context lengths [B] or from kv_indptr [B + 1], see launch_plan.
void dense_decode_plan(TensorView parts, TensorView split_offset, TensorView lengths, int64_t overhead, int64_t slot) {
  Keys keys = {};
  keys.lengths = data<int32_t>(lengths);
  const auto launch = lengths.size(0) + 1 == split_offset.size(0) ? launch_plan<Lookup::kPages> : launch_plan<Lookup::kList>;
  launch(keys, parts, split_offset, overhead, slot);
}

namespace {

Problem problem_of(const TensorView& parts, const TensorView& split_offset, const TensorView& partial_out,
                   const TensorView& partial_lse, const TensorView& out, const TensorView& lse, double scale) {
  Problem p = {};
  p.scale = static_cast<float>(scale);
  p.scale_log2 = static_cast<float>(scale * 1.4426950408889634);
  p.out = data<void>(out);
  p.lse = data<float>(lse);
  p.parts = data<Part>(parts);
  p.part_count = static_cast<int>(parts.size(0));
  p.split_offset = data<int32_t>(split_offset);
  p.partial_out = data<float>(partial_out);
  p.partial_lse = data<float>(partial_lse);
  p.new_tokens = 1;
  return p;
}

// Boxes of 64 columns and 64 rows of pages [P, page, 576], under the 128-byte swizzle.
CUtensorMap map_of_pages(const Keys& keys, int64_t pages) {
  const cuuint64_t sizes[] = {kWidth, static_cast<cuuint64_t>(keys.page_size), static_cast<cuuint64_t>(pages)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(keys.row_bytes), static_cast<cuuint64_t>(keys.page_bytes)};
  const cuuint32_t box[] = {64, kBlock, 1};
  return common::encode_map(CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, keys.latent, sizes, strides, box, CU_TENSOR_MAP_SWIZZLE_128B);
}

// A block of keys lies in one page if pages hold whole blocks: then it comes in boxes.
template <class Element>
void run_dense(const Problem& p, int64_t pages, int multiprocessors, cudaStream_t stream) {
  const int ctas = p.part_count * p.groups;
  if (p.keys.page_size % kBlock == 0)
    launch(p.groups > 1 ? flash_fwd_splitkv_mla_kernel_pages<Element, true> : flash_fwd_splitkv_mla_kernel_pages<Element, false>, p, ctas,
           false, kThreads, sizeof(SharedMemory), stream, map_of_pages(p.keys, pages));
  else
    launch(flash_fwd_splitkv_mla_kernel<Element>, p, ctas, false, kThreads, sizeof(SharedMemory), stream);
  // With twice as many CTAs as run at once, ratio to FlashMLA's time on one H200: one context of 32K among 63 of 512 0.85 instead of 0.91,
  // B=32 of 8192 keys 1.005 instead of 1.026.
  combine<Element>(p, p.part_count / p.queries, multiprocessors, stream, /* in order */ false, /* task CTAs */ 4);
}

}  // namespace

// q [B, s_q, H, 576], cache [P, page, 576], block_table [B, pages], cache_seqlens [B]; out [B, s_q * H, 512], lse [B, s_q * H].
void dense_decode(TensorView q, TensorView cache, TensorView block_table, TensorView cache_seqlens, TensorView out, TensorView lse,
                  double scale, bool causal, TensorView parts, TensorView split_offset, TensorView partial_out,
                  TensorView partial_lse) {
  DeviceGuard guard(q);
  Problem p = problem_of(parts, split_offset, partial_out, partial_lse, out, lse, scale);
  p.q = data<void>(q);
  p.q_rope = data<uint16_t>(q) + kValueWidth;
  p.q_stride = p.q_rope_stride = q.stride(0);
  p.q_new_stride = q.stride(1);
  p.q_head_stride = p.q_rope_head_stride = q.stride(2);
  p.queries = static_cast<int>(q.size(0));
  p.new_tokens = static_cast<int>(q.size(1));
  p.heads = static_cast<int>(q.size(2));
  p.rows = p.new_tokens * p.heads;
  p.groups = (p.rows + kRows - 1) / kRows;
  p.causal = causal && p.new_tokens > 1;
  p.lse_factor = 0.6931471805599453f;
  p.keys.table = data<int32_t>(block_table);
  p.keys.table_stride = block_table.stride(0);
  p.keys.width = static_cast<int>(block_table.size(1));
  p.keys.slots = cache.size(0);
  p.keys.lengths = data<int32_t>(cache_seqlens);
  p.keys.latent = data<uint8_t>(cache);
  p.keys.row_bytes = cache.stride(1) * 2;
  p.keys.page_bytes = cache.stride(0) * 2;
  p.keys.page_size = static_cast<int>(cache.size(1));
  p.keys.linear = cache.stride(0) == cache.size(1) * cache.stride(1);
  if (q.dtype().code == kDLBfloat)
    run_dense<__nv_bfloat16>(p, cache.size(0), multiprocessors(q), stream_of(q));
  else
    run_dense<__half>(p, cache.size(0), multiprocessors(q), stream_of(q));
}

// q_nope [B, 16, 512], q_pe [B, 16, 64], ckv [P, 512], kpe [P, 64]; out [B, 16, 512], lse [B, 16] in base 2.
void list_decode(TensorView q_nope, TensorView q_pe, TensorView ckv, TensorView kpe, TensorView kv_indptr, TensorView kv_indices,
                 TensorView out, TensorView lse, double scale, TensorView parts, TensorView split_offset, TensorView partial_out,
                 TensorView partial_lse) {
  DeviceGuard guard(q_nope);
  Problem p = problem_of(parts, split_offset, partial_out, partial_lse, out, lse, scale);
  p.q = data<void>(q_nope);
  p.q_rope = data<void>(q_pe);
  p.q_stride = q_nope.stride(0);
  p.q_head_stride = q_nope.stride(1);
  p.q_rope_stride = q_pe.stride(0);
  p.q_rope_head_stride = q_pe.stride(1);
  p.queries = static_cast<int>(q_nope.size(0));
  p.heads = p.rows = static_cast<int>(q_nope.size(1));
  p.groups = 1;
  p.lse_factor = 1.0f;
  p.keys.table = data<int32_t>(kv_indices);
  p.keys.width = static_cast<int>(kv_indices.size(0));
  p.keys.slots = ckv.size(0);
  p.keys.lengths = data<int32_t>(kv_indptr);
  p.keys.latent = data<uint8_t>(ckv);
  p.keys.rope = data<uint8_t>(kpe);
  p.keys.row_bytes = ckv.stride(0) * 2;
  p.keys.rope_row_bytes = kpe.stride(0) * 2;
  p.keys.linear = true;
  launch(flash_fwd_splitkv_mla_kernel_list, p, p.part_count, false, kThreads, sizeof(SharedMemory), stream_of(q_nope));
  combine<__nv_bfloat16>(p, p.part_count / p.queries, multiprocessors(q_nope), stream_of(q_nope));
}

}  // namespace mla

TVM_FFI_DLL_EXPORT_TYPED_FUNC(dense_decode_plan, mla::dense_decode_plan);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(dense_decode, mla::dense_decode);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(list_decode, mla::list_decode);
