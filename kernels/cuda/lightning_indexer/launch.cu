#include <algorithm>

#include "../common/launch.cuh"
#include "bounds.cuh"
#include "finish.cuh"
#include "maps.cuh"
#include "paged.cuh"

namespace indexer {

using common::check;
using common::data;
using common::DeviceGuard;
using common::stream_of;
using common::TensorView;

namespace {

// One CTA on each multiprocessor.
common::Launch persistent(const TensorView& on, int threads, size_t shared_bytes) {
  return {dim3(common::multiprocessors(on)), threads, shared_bytes, stream_of(on)};
}

// Launches a kernel over all queries and keys. `arguments` are those before its three tensor maps.
template <int kHeads, class Memory, class Kernel, class... Arguments>
void run_prefill(Kernel kernel, const Prefill& p, const TensorView& q, const TensorView& k, const TensorView& k_scale,
                 const Arguments&... arguments) {
  const CUtensorMap queries = map_of(data<void>(q), p.heads, q.stride(1), p.rows, q.stride(0), kHeads, kQueries<kHeads>);
  const CUtensorMap keys = map_of(data<void>(k), p.keys, k.stride(0), 1, p.keys * k.stride(0), kTile, 1);
  const CUtensorMap scales = map_of_line(data<void>(k_scale), p.keys, kTile);
  common::launch_kernel(kernel, persistent(q, kPrefillThreads, sizeof(Memory)), p, arguments..., queries, keys, scales);
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
  if (p.s_q == 1 && p.sequences > 32)
    run_paged<kHeads, 1, true>(p, q, cache, early);
  else if (p.s_q == 1)
    run_paged<kHeads, 1>(p, q, cache, early);
  else if (p.s_q == 2)
    run_paged<kHeads, 2>(p, q, cache, early);
  else
    run_paged<kHeads, 4>(p, q, cache, early);
}

Prefill problem_of(const TensorView& q, const TensorView& k, const TensorView& weights, const TensorView& starts, const TensorView& ends) {
  Prefill p = {};
  p.weights = data<float>(weights);
  p.weight_stride = weights.stride(0);
  p.starts = data<int32_t>(starts);
  p.ends = data<int32_t>(ends);
  p.rows = static_cast<int>(q.size(0));
  p.heads = static_cast<int>(q.size(1));
  p.keys = static_cast<int>(k.size(0));
  return p;
}

Candidates candidates_of(const TensorView& scales, const TensorView& thresholds, const TensorView& mask) {
  return {data<float>(thresholds), data<float2>(scales), data<uint32_t>(mask), static_cast<int>(mask.size(1))};
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
  Prefill p = problem_of(q, k, weights, starts, ends);
  p.out = data<float>(out);
  p.out_stride = out.stride(0);
  with_heads(p.heads, [&](auto heads) {
    constexpr int kHeads = decltype(heads)::value;
    run_prefill<kHeads, PrefillMemory>(indexer_logits_kernel<kHeads>, p, q, k, k_scale);
  });
}

// k_scale fp32 [S] -> refused int32 [1], which is zero before.
void indexer_check_scales(TensorView k_scale, TensorView refused) {
  DeviceGuard guard(k_scale);
  const int count = static_cast<int>(k_scale.size(0)), blocks = std::min((count + 1023) / 1024, 2 * common::multiprocessors(k_scale));
  const float* const scales = data<float>(k_scale);
  common::launch_kernel(check_scales_kernel, {dim3(blocks), 256, 0, stream_of(k_scale)}, scales, count, data<int32_t>(refused));
}

// q [T, 33 to 64, 128] is e4m3 as bytes, weights fp32 [T, H], refused int32 [1] -> bound_queries as bytes [T, 64, 128]; bound_weights fp32
// [T, 64], each a pair of bf16; scales fp32 [T, 2].
void indexer_prepare(TensorView q, TensorView weights, TensorView refused, TensorView bound_queries, TensorView bound_weights,
                     TensorView scales) {
  DeviceGuard guard(q);
  const Prepare p = {data<uint8_t>(q), q.stride(0), q.stride(1), data<float>(weights), weights.stride(0), data<uint8_t>(bound_queries),
                     data<BoundWeights>(bound_weights), data<float2>(scales), data<int32_t>(refused), static_cast<int>(q.size(1))};
  common::launch_kernel(prepare_kernel, {dim3(static_cast<unsigned>(q.size(0))), kPrepareThreads, 0, stream_of(q)}, p);
}

// q, bound_weights and scales are what indexer_prepare made of the queries; there are at most 2^20 keys; thresholds fp32 [T] -> mask int32
// [3 * ceil(T / 6), 8 * ceil(S / 128)], see `Candidates`.
void indexer_candidates(TensorView q, TensorView k, TensorView bound_weights, TensorView starts, TensorView ends, TensorView k_scale,
                        TensorView scales, TensorView thresholds, TensorView mask) {
  DeviceGuard guard(q);
  const Prefill p = problem_of(q, k, bound_weights, starts, ends);
  run_prefill<64, CandidatesMemory>(indexer_candidates_kernel, p, q, k, k_scale, candidates_of(scales, thresholds, mask));
}

// -> sampled_keys as bytes [S / 64, 128] and sampled_scales fp32 [S / 64], and each query's range of them int32 [T].
void indexer_sample(TensorView k, TensorView k_scale, TensorView starts, TensorView ends, TensorView sampled_keys, TensorView sampled_scales,
                    TensorView sample_starts, TensorView sample_ends) {
  DeviceGuard guard(k);
  Sample p = {};
  p.keys = data<uint4>(k);
  p.key_stride = k.stride(0) / 16;
  p.scales = data<float>(k_scale);
  p.sampled_keys = data<uint4>(sampled_keys);
  p.sampled_scales = data<float>(sampled_scales);
  p.starts = data<int32_t>(starts);
  p.ends = data<int32_t>(ends);
  p.sample_starts = data<int32_t>(sample_starts);
  p.sample_ends = data<int32_t>(sample_ends);
  p.samples = static_cast<int>(sampled_keys.size(0));
  p.rows = static_cast<int>(starts.size(0));
  p.all_keys = static_cast<int>(k.size(0));
  const int most = std::max(p.samples * 8, p.rows);
  common::launch_kernel(sample_kernel, {dim3((most + 255) / 256), 256, 0, stream_of(k)}, p);
}

// scores fp32 [T, S / 64] of the sample -> thresholds fp32 [T]. A query of at most `fits` keys needs none, and gets -inf.
void indexer_thresholds(TensorView scores, TensorView starts, TensorView ends, TensorView sample_starts, TensorView sample_ends,
                        TensorView thresholds, int64_t keys, int64_t topk, int64_t fits) {
  DeviceGuard guard(scores);
  Thresholds p = {};
  p.scores = data<float>(scores);
  p.stride = scores.stride(0);
  p.starts = data<int32_t>(starts);
  p.ends = data<int32_t>(ends);
  p.sample_starts = data<int32_t>(sample_starts);
  p.sample_ends = data<int32_t>(sample_ends);
  p.thresholds = data<float>(thresholds);
  p.keys = static_cast<int>(keys);
  p.k = static_cast<int>(topk);
  p.fits = static_cast<int>(fits);
  common::launch_kernel(threshold_kernel, {dim3(static_cast<unsigned>(scores.size(0))), kFinishThreads, 0, stream_of(scores)}, p);
}

// The arguments of indexer_logits, and what the functions above made of them -> out int32 [T, K], and failed int32 [T]. A query may have
// `capacity` candidates, at most 8192.
void indexer_finish(TensorView q, TensorView k, TensorView weights, TensorView starts, TensorView ends, TensorView k_scale,
                    TensorView scales, TensorView thresholds, TensorView mask, TensorView out, TensorView failed, int64_t capacity) {
  DeviceGuard guard(q);
  const Prefill p = problem_of(q, k, weights, starts, ends);
  Finish f = {};
  f.queries = data<uint8_t>(q);
  f.query_stride = q.stride(0);
  f.head_stride = q.stride(1);
  f.keys = data<uint8_t>(k);
  f.key_stride = k.stride(0);
  f.scales = data<float>(k_scale);
  f.candidates = candidates_of(scales, thresholds, mask);
  f.out = data<int32_t>(out);
  f.failed = data<int32_t>(failed);
  f.k = static_cast<int>(out.size(1));
  f.capacity = static_cast<int>(capacity);
  const size_t bytes = sizeof(FinishMemory) + size_t(f.capacity) * sizeof(uint2);
  common::launch_kernel(finish_kernel, {dim3(p.rows), kFinishThreads, bytes, stream_of(q)}, p, f);
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
TVM_FFI_DLL_EXPORT_TYPED_FUNC(indexer_candidates, indexer::indexer_candidates);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(indexer_check_scales, indexer::indexer_check_scales);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(indexer_prepare, indexer::indexer_prepare);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(indexer_sample, indexer::indexer_sample);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(indexer_thresholds, indexer::indexer_thresholds);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(indexer_finish, indexer::indexer_finish);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(paged_indexer_logits, indexer::paged_indexer_logits);
