// Host side of the attention kernels: the launches of attention itself and of the merge of its partial results.
#pragma once

#include <algorithm>

#include "../common/launch.cuh"
#include "merge.cuh"
#include "plan.cuh"

namespace mla {

// The problem of sparse attention: q [N, H, 576], indices [N, K]; a length serves `lengths_divisor` consecutive queries; out [N, H, 512] and
// lse [N, H]. The caller adds where the keys lie.
inline Problem sparse_problem(const TensorView& q, const TensorView& indices, const Optional<TensorView>& lengths, int64_t lengths_divisor,
                              const Optional<TensorView>& sink, const TensorView& out, const TensorView& lse, double scale) {
  Problem p = {};
  p.q = data<void>(q);
  p.q_rope = data<__nv_bfloat16>(q) + kValueWidth;
  p.q_stride = p.q_rope_stride = q.stride(0);
  p.q_head_stride = p.q_rope_head_stride = q.stride(1);
  p.queries = static_cast<int>(q.size(0));
  p.heads = p.rows = static_cast<int>(q.size(1));
  p.new_tokens = 1;
  p.scale = static_cast<float>(scale);
  p.scale_log2 = static_cast<float>(scale * 1.4426950408889634);
  p.keys.table = data<int32_t>(indices);
  p.keys.table_stride = indices.stride(0);
  p.keys.lengths = data<int32_t>(lengths);
  p.keys.lengths_divisor = static_cast<int>(lengths_divisor);
  p.keys.width = static_cast<int>(indices.size(1));
  p.sink = data<float>(sink);
  p.out = data<void>(out);
  p.lse = data<float>(lse);
  p.lse_factor = 0.6931471805599453f;
  return p;
}

// The keys of an FP8 cache [P, page, 1, 656].
inline void read_cache(Keys& keys, const TensorView& cache) {
  keys.slots = cache.size(0) * cache.size(1);
  keys.latent = data<uint8_t>(cache);
  keys.row_bytes = cache.stride(1);
  keys.page_bytes = cache.stride(0);
  keys.page_size = static_cast<int>(cache.size(1));
  keys.linear = cache.stride(0) == cache.size(1) * cache.stride(1);
}

// Records are addressed in units of 16 bytes, in 32 bits.
inline bool exceeds_64_gib(const TensorView& cache) {
  return ((cache.size(0) - 1) * cache.stride(0) + cache.size(1) * cache.stride(1)) >> 36 != 0;
}

// The plan of a step: parts [parts, 8] and split offsets [queries + 1], int32. `overhead` and `slot`: see struct Costs.
template <Lookup kLookup>
void launch_plan(const Keys& keys, const TensorView& parts, const TensorView& split_offset, int64_t overhead, int64_t slot) {
  constexpr int kMerge = 96;  // the start of the merging kernel takes as long as one and a half blocks, 3 to 6 microseconds
  DeviceGuard guard(parts);
  const Costs costs{int(overhead), int(slot), kMerge};
  plan_kernel<kLookup><<<1, 32, 0, stream_of(parts)>>>(keys, static_cast<int>(split_offset.size(0)) - 1, costs,
                                                       static_cast<int>(parts.size(0)), data<Part>(parts), data<int32_t>(split_offset));
  check(cudaGetLastError(), "plan");
}

// With parts, the kernel may start while the one before it drains: it waits on the device before it reads the plan.
template <class Kernel, class... More>
void launch(Kernel kernel, const Problem& problem, int ctas, bool pair, int threads, size_t shared_bytes, cudaStream_t stream,
            const More&... more) {
  launch_kernel(kernel, {dim3(ctas), threads, shared_bytes, stream, pair ? 2 : 1, problem.parts != nullptr}, problem, more...);
}

// The merge of partial results: it may start while the attention kernel drains, and waits for its end on the device.
template <class Kernel>
void launch_combine(Kernel kernel, const Problem& problem, int64_t ctas, int threads, cudaStream_t stream) {
  launch_kernel(kernel, {dim3(static_cast<unsigned>(ctas)), threads, 0, stream, 1, true}, problem);
}

template <class Element, int kQuarters, int kTurns, int kAtOnce, int kCtas>
void combine_rows(const Problem& p, cudaStream_t stream) {
  launch_combine(flash_fwd_mla_combine_kernel<Element, kQuarters, kTurns, kAtOnce, kCtas>, p,
                 int64_t(p.queries) * p.rows * (4 / kQuarters), 32 * kQuarters * kTurns, stream);
}

// `parts_each`: the parts of a query on average, by which the kernel is chosen. `in_order`: up to kFewSplits splits of a query are merged one
// after the other, whatever the number of queries. `task_ctas`: CTAs for each multiprocessor where tasks are shared out; two run at once.
template <class Element>
void combine(const Problem& p, int parts_each, int multiprocessors, cudaStream_t stream, bool in_order = false, int task_ctas = 2) {
  const int64_t rows = int64_t(p.queries) * p.rows;
  if (in_order || rows >= 1024 || p.part_count < 2 * p.queries)
    launch_combine(flash_fwd_mla_combine_kernel_tasks<Element>, p, task_ctas * multiprocessors, kTaskThreads, stream);
  else if (rows >= 512)
    combine_rows<Element, 4, 1, 4, 10>(p, stream);
  else if (rows > 32 || parts_each < 64)
    combine_rows<Element, 4, 4, 4, 2>(p, stream);
  else
    combine_rows<Element, 1, 16, 8, 1>(p, stream);
}

// The merge of parts of few blocks. The first of its CTAs start on multiprocessors that have no part; unused shared memory keeps them from
// crowding there, so that rows spread over all multiprocessors.
template <class Element, bool kEqual = false>
void combine_few_blocks(const Problem& p, int multiprocessors, cudaStream_t stream) {
  constexpr int kBytes = 228 * 1024, kReserved = 1024, kLeast = 4, kMost = 8;  // a multiprocessor's, a CTA's; more CTAs have no registers
  const int64_t rows = int64_t(p.queries) * p.rows, each = std::max<int64_t>((rows + multiprocessors - 1) / multiprocessors, kLeast);
  const size_t unused = each < kMost ? (kBytes / each - kReserved) / 128 * 128 : 0;
  launch_kernel(flash_fwd_mla_combine_kernel_row<Element, kEqual>, {dim3(p.rows, p.queries), 128, unused, stream, 1, true}, p);
}

}  // namespace mla
