// Sparse prefill: persistent CTAs, one query and 64 heads at a time. The CTAs of a query's row blocks are neighbours, and meet in L2. Queries
// too few to occupy the GPU are divided into equal parts of their keys, one for each CTA.

#include "../attention/gather.cuh"
#include "../attention/launch.cuh"

namespace mla {

// The order depends on where the keys are once a launch has warmed up. Rows that fit into L2 arrive soon, and both groups score ahead. Rows
// from device memory arrive late, so group 0 takes the other group's probabilities, which frees a buffer, before it waits for its next
// keys. 4096 queries of 128 heads, ratio to FlashMLA's time on one H200: with 128K keys (151 MB) 0.99 instead of 1.00, with 8K (9 MB) 1.02 instead of 0.99.
enum class Source { kL2, kMemory };
template <Source kSource>
using PrefillOrder = Order<kSource == Source::kL2 ? Ahead::kLeftHalf : Ahead::kNothing, Ahead::kLeftHalf, Release::kBehindTile,
                           /* fence */ false>;
template <Source kSource, bool kDivided>
using PrefillConfig = Config<Lookup::kIndices, Storage::kRows, __nv_bfloat16, false, PrefillOrder<kSource>,
                             kDivided ? Planned::kEqual : Planned::kNever>;

template <Source kSource, bool kDivided = false>
__global__ void __launch_bounds__(kThreads, 1) sparse_attn_fwd_kernel(const __grid_constant__ Problem problem) {
  attend<PrefillConfig<kSource, kDivided>, Gather<PrefillConfig<kSource, kDivided>>>(problem);
}

// q [T, H, 576], kv rows [S, 576], indices [T, K]; outputs out [T, H, 512], max_logits and lse [T, H]. Checked by the caller. With partial
// results [T, pieces, H, 512] and [2, T, pieces, H], the keys of a query are divided into pieces of `piece_blocks` blocks.
void sparse_prefill_rows(TensorView q, TensorView kv, TensorView indices, Optional<TensorView> topk_length,
                         Optional<TensorView> sink, TensorView out, TensorView max_logits, TensorView lse, double scale,
                         int64_t piece_blocks, Optional<TensorView> partial_out, Optional<TensorView> partial_sums) {
  DeviceGuard guard(q);
  Problem p = sparse_problem(q, indices, topk_length, 1, sink, out, lse, scale);
  p.groups = (p.heads + kRows - 1) / kRows;
  p.keys.slots = kv.size(0);
  p.keys.latent = data<uint8_t>(kv);
  p.keys.row_bytes = kv.stride(0) * 2;
  p.keys.linear = true;
  p.max_logits = data<float>(max_logits);
  if (partial_out.has_value()) {
    p.pieces = static_cast<int>(partial_out.value().size(1));
    p.piece_blocks = static_cast<int>(piece_blocks);
    p.partial_out = data<float>(partial_out);
    p.partial_lse = data<float>(partial_sums);
    p.partial_top = p.partial_lse + int64_t(p.queries) * p.pieces * p.rows;
    launch(sparse_attn_fwd_kernel<Source::kMemory, true>, p, p.queries * p.pieces * p.groups, false, kThreads, sizeof(SharedMemory),
           stream_of(q));
    combine_few_blocks<__nv_bfloat16, true>(p, multiprocessors(q), stream_of(q));
    return;
  }
  const int ctas = static_cast<int>(std::min<int64_t>(int64_t(p.queries) * p.groups, multiprocessors(q)));
  int l2_bytes = 0;
  check(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, q.device().device_id), "L2 size");
  const bool cached = kv.size(0) * p.keys.row_bytes <= l2_bytes;
  launch(cached ? sparse_attn_fwd_kernel<Source::kL2> : sparse_attn_fwd_kernel<Source::kMemory>, p, ctas, false, kThreads,
         sizeof(SharedMemory), stream_of(q));
}

}  // namespace mla

TVM_FFI_DLL_EXPORT_TYPED_FUNC(sparse_prefill_rows, mla::sparse_prefill_rows);
