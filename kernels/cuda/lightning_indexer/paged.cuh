// Paged decode. The pages of all sequences, in order, are divided equally among the CTAs; among many sequences, each counts some pages more.
// Several producer warps copy whole pages (keys and scales) by TMA, another one copies queries. The math warpgroups take turns at the pages.
#pragma once

#include "../common/pdl.cuh"
#include "scores.cuh"

namespace indexer {

constexpr int kPageLines = kKeys + 2;  // lines of 128 bytes: 64 keys, then 64 fp32 scales

struct Paged {
  const float* weights;  // [sequences, s_q, heads]
  int64_t weight_stride, weight_row_stride;
  const int32_t* table;  // [sequences, columns]
  int64_t table_stride;
  const int32_t* lengths;  // [sequences]
  float* out;  // [sequences * s_q, max_context]
  int64_t out_stride;
  int sequences, s_q, heads, max_context, columns;  // s_q: new tokens of each sequence; columns: of the block table

  // How many items of kTokens new tokens a sequence has: one where fewer than four are computed at once, which saves divisions.
  template <int kTokens>
  __device__ __forceinline__ int parts() const {
    return kTokens < 4 ? 1 : (s_q + kTokens - 1) / kTokens;
  }
};

// kHeads: the number of heads, padded to 16, 32 or 64. kTokens: new tokens of a sequence that are computed at once. kMany: for more than 32
// sequences, of which a CTA may have several.
template <int kHeads, int kTokens, bool kMany>
struct PagedShape {
  static constexpr int kColumns = kHeads * kTokens;
  static constexpr int kGroups = kColumns > 128 ? 2 : kColumns > 64 ? 3 : 4;  // math warpgroups, as registers allow
  static constexpr int kCopiers = kGroups == 4 ? 4 : 2;
  static constexpr bool kMovesRegisters = kGroups < 4;  // from producers to math; otherwise all need less than their equal share
  static constexpr int kMathRegisters = kGroups == 2 ? 232 : 152, kCopyRegisters = 40;
  static constexpr int kThreads = kGroups * kWarpgroup + (kMovesRegisters ? kWarpgroup : (kCopiers + 1) * 32);
  static constexpr int kBuffers = kMany ? 4 : 2;  // of queries: with short sequences a CTA soon needs its next runs' queries
  // 12 pages are 100 KB in flight. With 18 pages, B=16 took 9 % longer; with 6 pages, B=64 took 2 to 4 % longer.
  static constexpr int kStages = kColumns > 128 ? 16 : 12;
  // Each stage belongs to one producer warp and one math warpgroup. A barrier's parity only distinguishes neighbouring phases, and copies
  // may complete out of order: another warpgroup could mistake a phase that has not begun for one that is over.
  static_assert(kStages % kCopiers == 0 && kStages % kGroups == 0);

  struct Memory {
    alignas(1024) uint8_t queries[kBuffers][kColumns * kWidth];
    struct alignas(1024) {
      uint8_t bytes[kPageLines * kWidth];
    } pages[kStages];
    alignas(16) float weights[kBuffers][kColumns];
    uint64_t full[kStages], empty[kStages], queries_full[kBuffers], queries_empty[kBuffers];
    Run run[kBuffers];
  };
  static_assert(sizeof(Memory) <= 227 * 1024);
};

// Iterates over the runs of this CTA's share: consecutive pages of one item, that is, of kTokens new tokens of one sequence. Whole warps
// call it.
template <int kTokens, bool kMany>
struct PagedRuns {
  const Paged& p;
  static constexpr int kStart = kMany ? 4 : 0;  // pages that count for the start of an item among many, which takes time too
  int parts, skip = 0, left = 0;
  Run run;

  // The work of an item: its pages, and those that count for its start.
  __device__ __forceinline__ int units(int item) const {
    const int length = min(__ldg(p.lengths + item / parts), min(p.max_context, p.columns * kKeys));
    const int pages = max(length + kKeys - 1, 0) / kKeys;
    return pages + (pages > 0 ? kStart : 0);
  }

  __device__ __forceinline__ explicit PagedRuns(const Paged& problem) : p(problem), parts(p.template parts<kTokens>()) {
    // Each lane counts the work of consecutive items.
    const int lane = threadIdx.x & 31, items = p.sequences * parts, each = (items + 31) / 32, from = lane * each;
    int own = 0;
#pragma unroll 2
    for (int i = 0; i < each; ++i) own += from + i < items ? units(from + i) : 0;
    const int through = sum_through(own, lane);
    const unsigned total = __shfl_sync(~0u, through, 31), share = total / gridDim.x, rest = total % gridDim.x;
    const int first = blockIdx.x * share + min(blockIdx.x, rest);
    left = share + (blockIdx.x < rest ? 1 : 0);
    if (left == 0) return;
    const int owner = __ffs(__ballot_sync(~0u, through > first)) - 1;  // its items hold unit `first`
    skip = first - __shfl_sync(~0u, through - own, owner);
    run.item = owner * each - 1;
    for (int count = units(run.item + 1); skip >= count; count = units(run.item + 1)) {
      skip -= count;
      ++run.item;
    }
  }
  __device__ __forceinline__ bool next() {
    while (left > 0) {
      const int through = min(units(++run.item), skip + left);
      run.begin = max(skip - kStart, 0);
      run.end = max(through - kStart, 0);
      left -= through - skip;
      skip = 0;
      if (run.begin < run.end) return true;
    }
    return false;
  }
};

// Requests the block table into L2, a line of 128 bytes for each lane of all copying warps, while the lengths are read: with cold caches the
// table would come from memory only after the lengths. A table of more lines is not requested.
template <int kCopiers>
__device__ __forceinline__ void request_table(const Paged& p, int copier) {
  const int64_t bytes = ((p.sequences - 1) * p.table_stride + p.columns) * 4;
  const int64_t line = (int64_t(blockIdx.x) * kCopiers + copier) * 32 + (threadIdx.x & 31);
  if (bytes <= int64_t(gridDim.x) * kCopiers * 32 * 128 && line * 128 < bytes)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(reinterpret_cast<const char*>(p.table) + line * 128));
}

// Copies every kCopiers-th page of the CTA's share, from page `first` on. One thread cannot start copies as fast as L2 serves them.
template <int kHeads, int kTokens, bool kMany>
__device__ void copy_pages(const Paged& p, PagedRuns<kTokens, kMany>& runs, const CUtensorMap& page_map,
                           typename PagedShape<kHeads, kTokens, kMany>::Memory& s, int first) {
  constexpr int kCopiers = PagedShape<kHeads, kTokens, kMany>::kCopiers;
  const int lane = threadIdx.x & 31;
  Ring<PagedShape<kHeads, kTokens, kMany>::kStages> ring;
  ring.advance(first);
  while (runs.next()) {
    const int begin = runs.run.begin, end = runs.run.end;
    const int32_t* table = p.table + runs.run.item / runs.parts * p.table_stride;
    auto look_up = [&](int at) { return at + kCopiers * lane < end ? __ldg(table + at + kCopiers * lane) : 0; };
    int at = begin + first, next = look_up(at);
    while (at < end) {
      const int page = next, stop = min(at + kCopiers * 32, end);
      next = look_up(at + kCopiers * 32);
      for (int turn = 0; at < stop; at += kCopiers, ++turn, ring.advance(kCopiers)) {
        const int this_page = __shfl_sync(~0u, page, turn);
        if (lane == 0) {
          uint64_t* full = &s.full[ring.stage];
          wait(&s.empty[ring.stage], ring.parity ^ 1);
          arrive_expect(full, sizeof(s.pages[0].bytes));
          copy_box(s.pages[ring.stage].bytes, page_map, 0, 0, this_page, full);
        }
      }
    }
    first = at - end;
  }
}

// Starts to copy the weights of kTokens queries to shared memory, and writes zeros for heads and queries that do not exist.
template <int kHeads, int kTokens>
__device__ __forceinline__ void start_weights(float* to, const float* from, int64_t stride, int queries, int heads) {
#pragma unroll
  for (int i = threadIdx.x & 31; i < kHeads * kTokens; i += 32) {
    const int query = i / kHeads, head = i % kHeads;
    if (query < queries && head < heads)
      common::copy4(shared_address(to + i), from + query * stride + head);
    else
      to[i] = 0.0f;
  }
}

// Copies the queries and weights of each run. kMany: all copies are asynchronous, so that the warp is soon free for the next run. With one run
// in a single CTA it is faster to wait for the weights.
template <int kHeads, int kTokens, bool kMany>
__device__ void copy_queries(const Paged& p, PagedRuns<kTokens, kMany>& runs, const CUtensorMap& query_map,
                             typename PagedShape<kHeads, kTokens, kMany>::Memory& s) {
  const int lane = threadIdx.x & 31;
  Ring<PagedShape<kHeads, kTokens, kMany>::kBuffers> ring;
  for (bool more = true; more; ring.advance()) {
    more = runs.next();
    wait(&s.queries_empty[ring.stage], ring.parity ^ 1);
    uint64_t* full = &s.queries_full[ring.stage];
    if (more) {
      const int sequence = runs.run.item / runs.parts, token = runs.run.item % runs.parts * kTokens;
      const float* weights = p.weights + sequence * p.weight_stride + token * p.weight_row_stride;
      if constexpr (kMany) {
        start_weights<kHeads, kTokens>(s.weights[ring.stage], weights, p.weight_row_stride, p.s_q - token, p.heads);
        common::barrier_arrive_after_copies(shared_address(full));
      }
      if (lane == 0) {
        s.run[ring.stage] = runs.run;
        arrive_expect(full, sizeof(s.queries[0]));
        copy_box(s.queries[ring.stage], query_map, 0, 0, sequence * p.s_q + token, full);
      }
      if constexpr (!kMany)
        copy_weights<kHeads, kTokens>(s.weights[ring.stage], weights, p.weight_row_stride, p.s_q - token, p.heads);
      __syncwarp();  // lane 0 has arrived already: its weights are there before the others arrive
      if (lane != 0) arrive(full);
    } else {
      if (lane == 0) s.run[ring.stage].begin = -1;
      arrive(full);
      if constexpr (kMany) arrive(full);
    }
  }
}

// The scales of a page are its last two lines of 128 bytes. In the second one the swizzle has exchanged neighbouring 16-byte pieces.
__device__ __forceinline__ float scale_of(const uint8_t* page, int key) {
  return reinterpret_cast<const float*>(page + kKeys * kWidth)[key < 32 ? key : key ^ 4];
}

template <int kHeads, int kTokens, bool kMany>
__device__ void paged_math(const Paged& p, typename PagedShape<kHeads, kTokens, kMany>::Memory& s) {
  using Shape = PagedShape<kHeads, kTokens, kMany>;
  constexpr int kColumns = Shape::kColumns;
  using All = Sums<kHeads, kColumns>;
  const int group = uniform(threadIdx.x / kWarpgroup), lane = threadIdx.x & 31, parts = p.template parts<kTokens>();
  float d[kColumns / 2], weights[kColumns / 4];
  Ring<Shape::kStages> ring;
  ring.advance(group);
  int first = group;  // this warpgroup's first page in the run
  for (Ring<Shape::kBuffers> queries;; queries.advance()) {
    wait(&s.queries_full[queries.stage], queries.parity);
    const Run& shared_run = s.run[queries.stage];
    const Run run = {uniform(shared_run.item), uniform(shared_run.begin), uniform(shared_run.end)};
    if (run.begin < 0) break;
    load_weights<kColumns>(weights, s.weights[queries.stage]);
    const uint32_t q = descriptor(s.queries[queries.stage]);
    const int sequence = run.item / parts, token = run.item % parts * kTokens + All::query();
    float* out = p.out + (int64_t(sequence) * p.s_q + token) * p.out_stride + All::key();
    const int rows = All::writes() ? p.s_q - token : 0;
    int at = run.begin + first;
    for (; at < run.end; at += Shape::kGroups, ring.advance(Shape::kGroups)) {
      const uint8_t* page = s.pages[ring.stage].bytes;
      wait(&s.full[ring.stage], ring.parity);
      multiply_words<kColumns>(d, descriptor(page), q);
      float scale[All::kHeldKeys];
#pragma unroll
      for (int i = 0; i < All::kHeldKeys; ++i) scale[i] = scale_of(page, All::key() + 8 * i);
      mma_wait<0>();
      hold(d);
      __syncwarp();
      if (lane == 0) arrive(&s.empty[ring.stage]);
      All sums;
      sums.add_up(d, weights);
#pragma unroll
      for (int v = 0; v < All::kHeld; ++v) {
        const int column = at * kKeys + 8 * (v & 1);
        if (v / 2 < rows && column + All::key() < p.max_context)
          __stcs(out + v / 2 * p.out_stride + column, sums.value[v] * scale[v & 1]);
      }
    }
    first = at - run.end;
    __syncwarp();
    if (lane == 0) arrive(&s.queries_empty[queries.stage]);
  }
}

template <int kHeads, int kTokens, bool kMany>
__global__ void __launch_bounds__(PagedShape<kHeads, kTokens, kMany>::kThreads, 1)
    paged_indexer_logits_kernel(const __grid_constant__ Paged p, const __grid_constant__ CUtensorMap query_map,
                                const __grid_constant__ CUtensorMap page_map) {
  using Shape = PagedShape<kHeads, kTokens, kMany>;
  extern __shared__ __align__(1024) uint8_t memory[];
  auto& s = *reinterpret_cast<typename Shape::Memory*>(memory);
  common::pdl_launch_dependents();
  const int thread = threadIdx.x, producer = uniform(thread / 32) - Shape::kGroups * 4;
  if (producer < 0) {
    if (thread == 0) {  // by several threads each barrier would wait for a fence of its own, one after the other
      for (int i = 0; i < Shape::kStages; ++i) {
        barrier_init(shared_address(&s.full[i]), 1);
        barrier_init(shared_address(&s.empty[i]), 4);  // the warps of the warpgroup that uses the stage
      }
      for (int i = 0; i < Shape::kBuffers; ++i) {
        barrier_init(shared_address(&s.queries_full[i]), kMany ? 64 : 32);  // kMany: lanes, and their copies
        barrier_init(shared_address(&s.queries_empty[i]), 4 * Shape::kGroups);
      }
      barrier_init_fence();
    }
    __syncthreads();
    if constexpr (Shape::kMovesRegisters) grow_registers<Shape::kMathRegisters>();
    paged_math<kHeads, kTokens, kMany>(p, s);
  } else {
    if (producer == 0 && thread % 32 == 0) prefetch_map(&page_map);
    if (producer == Shape::kCopiers && thread % 32 == 0) prefetch_map(&query_map);
    if (producer < Shape::kCopiers) request_table<Shape::kCopiers>(p, producer);
    PagedRuns<kTokens, kMany> runs(p);  // lengths are read while the barriers are made
    __syncthreads();
    if constexpr (Shape::kMovesRegisters) shrink_registers<Shape::kCopyRegisters>();
    if (producer < Shape::kCopiers)
      copy_pages<kHeads, kTokens, kMany>(p, runs, page_map, s, producer);
    else if (producer == Shape::kCopiers) {
      common::pdl_wait();  // and with it everything that depends on the queries, stores included
      copy_queries<kHeads, kTokens, kMany>(p, runs, query_map, s);
    }
  }
}

}  // namespace indexer
