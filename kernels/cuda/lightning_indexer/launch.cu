#include "../common/tensor_map.cuh"
#include "paged.cuh"
#include "prefill.cuh"

namespace indexer {

namespace {

// Tensor map of bytes [blocks, rows, 128] in boxes [box_blocks, box_rows, 128] under the 128-byte swizzle. Elements outside read as zero.
CUtensorMap map_of(const void* start, int64_t rows, int64_t row_stride, int64_t blocks, int64_t block_stride, int box_rows,
                   int box_blocks) {
  const cuuint64_t sizes[] = {kWidth, static_cast<cuuint64_t>(rows), static_cast<cuuint64_t>(blocks)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(row_stride), static_cast<cuuint64_t>(block_stride)};
  const cuuint32_t box[] = {kWidth, static_cast<cuuint32_t>(box_rows), static_cast<cuuint32_t>(box_blocks)};
  return encode_map(CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, start, sizes, strides, box, CU_TENSOR_MAP_SWIZZLE_128B);
}

// Tensor map of `count` floats in boxes of `box`. Elements outside read as zero.
CUtensorMap map_of_line(const void* start, int64_t count, int box) {
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(count)}, strides[] = {static_cast<cuuint64_t>(count) * 4};  // not read
  const cuuint32_t boxes[] = {static_cast<cuuint32_t>(box)};
  return encode_map(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 1, start, sizes, strides, boxes, CU_TENSOR_MAP_SWIZZLE_NONE);
}

// One CTA on each multiprocessor.
common::Launch persistent(const TensorView& on, int threads, size_t shared_bytes) {
  return {dim3(common::multiprocessors(on)), threads, shared_bytes, stream_of(on)};
}

template <int kHeads>
void run_prefill(const Prefill& p, const TensorView& q, const TensorView& k, const TensorView& k_scale) {
  const CUtensorMap queries = map_of(data<void>(q), p.heads, q.stride(1), p.rows, q.stride(0), kHeads, kQueries<kHeads>);
  const CUtensorMap keys = map_of(data<void>(k), p.keys, k.stride(0), 1, p.keys * k.stride(0), kTile, 1);
  const CUtensorMap scales = map_of_line(data<void>(k_scale), p.keys, kTile);
  common::launch_kernel(indexer_logits_kernel<kHeads>, persistent(q, kPrefillThreads, sizeof(PrefillMemory)), p, queries, keys, scales);
}

template <int kHeads, int kTokens, bool kMany = false>
void run_paged(const Paged& p, const TensorView& q, const TensorView& cache, bool early) {
  using Shape = PagedShape<kHeads, kTokens, kMany>;
  const int64_t rows = q.size(0);
  const CUtensorMap queries = map_of(data<void>(q), p.heads, q.stride(1), rows, q.stride(0), kHeads, kTokens);
  const CUtensorMap pages = map_of(data<void>(cache), kPageLines, kWidth, cache.size(0), cache.stride(0), kPageLines, 1);
  common::Launch how = persistent(q, Shape::kThreads, sizeof(typename Shape::Memory));
  how.programmatic = early;
  common::launch_kernel(paged_indexer_logits_kernel<kHeads, kTokens, kMany>, how, p, queries, pages);
}

template <int kHeads>
void run_paged(const Paged& p, const TensorView& q, const TensorView& cache, bool early) {
  const bool many = p.sequences > 32;
  if (p.s_q == 1)
    return (many ? run_paged<kHeads, 1, true> : run_paged<kHeads, 1, false>)(p, q, cache, early);
  if (p.s_q == 2)
    (many ? run_paged<kHeads, 2, true> : run_paged<kHeads, 2, false>)(p, q, cache, early);
  else
    run_paged<kHeads, 4>(p, q, cache, early);
}

// Calls f with the number of heads padded to 16, 32 or 64.
template <class F>
void with_heads(int heads, F f) {
  if (heads <= 16)
    f(std::integral_constant<int, 16>());
  else if (heads <= 32)
    f(std::integral_constant<int, 32>());
  else
    f(std::integral_constant<int, 64>());
}

}  // namespace

// q [T, H <= 64, 128] and k [S, 128] are e4m3 as bytes; weights fp32 [T, H], starts and ends int32 [T], k_scale fp32 [S], out fp32 [T, S].
void indexer_logits(TensorView q, TensorView k, TensorView weights, TensorView starts, TensorView ends, TensorView k_scale,
                    TensorView out) {
  DeviceGuard guard(q);
  Prefill p = {};
  p.weights = data<float>(weights);
  p.weight_stride = weights.stride(0);
  p.starts = data<int32_t>(starts);
  p.ends = data<int32_t>(ends);
  p.out = data<float>(out);
  p.out_stride = out.stride(0);
  p.rows = static_cast<int>(q.size(0));
  p.keys = static_cast<int>(k.size(0));
  p.heads = static_cast<int>(q.size(1));
  with_heads(p.heads, [&](auto heads) { run_prefill<decltype(heads)::value>(p, q, k, k_scale); });
}

// q [B * s_q, H <= 64, 128] is e4m3 as bytes, cache [P, 64 * 132] bytes; weights fp32 [B, s_q, H], block_table int32 [B, pages], lengths
// int32 [B], out fp32 [B * s_q, max_context]. static_inputs: the previous kernel has not written cache, block_table and lengths, so that this
// one may start early (pdl.cuh).
void paged_indexer_logits(TensorView q, TensorView cache, TensorView weights, TensorView block_table, TensorView lengths,
                          TensorView out, bool static_inputs) {
  DeviceGuard guard(q);
  Paged p = {};
  p.weights = data<float>(weights);
  p.weight_stride = weights.stride(0);
  p.weight_row_stride = weights.stride(1);
  p.table = data<int32_t>(block_table);
  p.table_stride = block_table.stride(0);
  p.columns = static_cast<int>(block_table.size(1));
  p.lengths = data<int32_t>(lengths);
  p.out = data<float>(out);
  p.out_stride = out.stride(0);
  p.max_context = static_cast<int>(out.size(1));
  p.sequences = static_cast<int>(weights.size(0));
  p.s_q = static_cast<int>(weights.size(1));
  p.heads = static_cast<int>(q.size(1));
  with_heads(p.heads, [&](auto heads) { run_paged<decltype(heads)::value>(p, q, cache, static_inputs); });
}

}  // namespace indexer

TVM_FFI_DLL_EXPORT_TYPED_FUNC(indexer_logits, indexer::indexer_logits);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(paged_indexer_logits, indexer::paged_indexer_logits);
