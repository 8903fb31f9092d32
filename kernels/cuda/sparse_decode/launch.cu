// FP8 sparse decode: split-KV parts over the planned queries; and the same keys for prefill, one query after the other. With more heads than
// few_heads.cuh takes, 64 of them are the M of a warpgroup's MMA, for which records become bf16 tiles.

#include "../attention/dequantize.cuh"
#include "../attention/launch.cuh"
#include "few_heads.cuh"

namespace mla {

// With a plan, one group scores all blocks, in half the code of the seesaw. Parts of many blocks wait for conversion. Parts of few blocks
// wait for the way from the first key to the result, whose instructions are in no cache. Without a plan, each CTA takes one
// query after the other, by the seesaw. In a pair, conversion then waits least for its buffers if they are released at once; without a pair, a CTA
// converts more slowly than it computes, and both groups score ahead; as Planned::kNever it would spill more registers (ptxas 13.0). Converted
// keys are written by the generic proxy, so all have the fence. docs/log/attention.md has the measurements.
template <bool kPair>
using UnplannedOrder =
    std::conditional_t<kPair, Order<Ahead::kNothing, Ahead::kNothing, Release::kAtOnce, /* fence */ true>,
                       Order<Ahead::kLeftHalf, Ahead::kLeftHalf, Release::kBehindTile, true>>;
template <bool kPair, bool kPlanned>
using Fp8Config = Config<Lookup::kIndices, Storage::kFp8, __nv_bfloat16, kPair, std::conditional_t<kPlanned, OneScorer, UnplannedOrder<kPair>>,
                         kPlanned ? Planned::kAlways : Planned::kPerhaps>;

template <bool kPair, bool kPlanned>
__global__ void __launch_bounds__(kThreads, 1) flash_fwd_splitkv_mla_fp8_sparse_kernel(const __grid_constant__ Problem problem) {
  using C = Fp8Config<kPair, kPlanned>;
  if constexpr (kPlanned)
    attend_with_one_scorer<C, RolledDequantize<C>>(problem);
  else
    attend<C, Dequantize<C>>(problem);
}

constexpr int kFewHeads = 32;  // up to here, CTAs of 16 heads are faster than one of 64
constexpr int kManyBlocks = 24;  // of a part, from which on most queries have nothing to merge

// The plan of a step for `width` columns a query, see launch_plan.
void sparse_decode_plan(TensorView parts, TensorView split_offset, Optional<TensorView> topk_length, int64_t width,
                        int64_t lengths_divisor, int64_t overhead, int64_t slot) {
  Keys keys = {};
  keys.lengths = data<int32_t>(topk_length);
  keys.lengths_divisor = static_cast<int>(lengths_divisor);
  keys.width = static_cast<int>(width);
  launch_plan<Lookup::kIndices>(keys, parts, split_offset, overhead, slot);
}

// q [N, H, 576], cache uint8 [P, page, 1, 656], indices [N, K]; out [N, H, 512], lse [N, H]. A length serves `lengths_divisor`
// consecutive queries. With a plan, the partial buffers have (N + parts) slots; in_order: its splits, at most kFewSplits a query, are
// merged in one order.
void sparse_decode(TensorView q, TensorView cache, TensorView indices, Optional<TensorView> topk_length, Optional<TensorView> sink,
                   TensorView out, Optional<TensorView> max_logits, TensorView lse, double scale,
                   int64_t lengths_divisor, Optional<TensorView> parts, Optional<TensorView> split_offset,
                   Optional<TensorView> partial_out, Optional<TensorView> partial_lse, bool in_order) {
  DeviceGuard guard(q);
  Problem p = sparse_problem(q, indices, topk_length, lengths_divisor, sink, out, lse, scale);
  const int heads = p.heads;
  // A single undivided query is faster without exchanges. In parts of a block or two it takes a fifth less time with them.
  const bool few = heads <= kFewHeads, pair = heads > kRows && (q.size(0) > 1 || parts.has_value());
  if (!few && exceeds_64_gib(cache))
    TVM_FFI_THROW(ValueError) << "cache is " << cache.size(0) << " pages of stride " << cache.stride(0)
                              << "; expected less than 64 GiB in all with more than " << kFewHeads << " heads";
  const int cta_rows = few ? kFewRows : kRows, row_blocks = (heads + cta_rows - 1) / cta_rows;
  p.groups = pair ? (row_blocks + 1) / 2 : row_blocks;
  read_cache(p.keys, cache);
  p.max_logits = data<float>(max_logits);
  const cudaStream_t stream = stream_of(q);
  const int ctas_each = p.groups * (pair ? 2 : 1);
  int ctas = std::min<int64_t>(int64_t(p.queries) * ctas_each, few ? multiprocessors(q) * 2 : multiprocessors(q) / 2 * 2);
  if (parts.has_value()) {
    p.parts = data<Part>(parts);
    p.part_count = static_cast<int>(parts.value().size(0));
    p.split_offset = data<int32_t>(split_offset);
    p.partial_out = data<float>(partial_out);
    p.partial_lse = data<float>(partial_lse);
    ctas = p.part_count * ctas_each;
  }
  const auto run = [&](auto kernel, bool in_pairs) { launch(kernel, p, ctas, in_pairs, kThreads, sizeof(SharedMemory), stream); };
  if (few && ctas <= multiprocessors(q))
    launch(flash_fwd_splitkv_mla_fp8_sparse_kernel_few_heads<4>, p, ctas, false, kFewThreads, sizeof(FewMemory<4>), stream);
  else if (few)
    launch(flash_fwd_splitkv_mla_fp8_sparse_kernel_few_heads<2>, p, ctas, false, kFewThreads, sizeof(FewMemory<2>), stream);
  else if (pair && parts.has_value())
    run(flash_fwd_splitkv_mla_fp8_sparse_kernel<true, true>, true);
  else if (pair)
    run(flash_fwd_splitkv_mla_fp8_sparse_kernel<true, false>, true);
  else if (parts.has_value())
    run(flash_fwd_splitkv_mla_fp8_sparse_kernel<false, true>, false);
  else
    run(flash_fwd_splitkv_mla_fp8_sparse_kernel<false, false>, false);
  if (!parts.has_value()) return;
  // The blocks of a part, only by shape, since lengths are on the device.
  const int64_t width = (p.keys.width + kBlock - 1) / kBlock, blocks = int64_t(p.queries) * width;
  if (!few && !in_order && blocks < int64_t(kManyBlocks) * p.part_count)
    combine_few_blocks<__nv_bfloat16>(p, multiprocessors(q), stream);
  else
    combine<__nv_bfloat16>(p, std::min<int64_t>(p.part_count / p.queries, width), multiprocessors(q), stream, in_order);
}

}  // namespace mla

TVM_FFI_DLL_EXPORT_TYPED_FUNC(sparse_decode_plan, mla::sparse_decode_plan);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(sparse_decode, mla::sparse_decode);
