// Paged decode: every CTA takes an equal share of all pages of all sequences, in order. Two warps copy whole pages, keys and
// scales, by the tensor copy engine, another the queries; math warpgroups take turns at the pages.
#pragma once

#include "scores.cuh"

namespace indexer {

constexpr int kCopiers = 2;
constexpr int kPageLines = kKeys + 2;  // of 128 bytes: 64 keys, then 64 fp32 scales

struct Paged {
  const float* weights;  // [sequences, fresh, heads]
  int64_t weight_stride, weight_row_stride;
  const int32_t* table;  // [sequences, columns]
  int64_t table_stride;
  const int32_t* lengths;  // [sequences]
  float* out;  // [sequences * fresh, max_context]
  int64_t out_stride;
  int sequences, fresh, heads, max_context, columns;
};

// kHeads is what the heads are padded to, kFresh how many of a sequence's new tokens are done at once.
template <int kHeads, int kFresh>
struct PagedShape {
  static constexpr int kColumns = kHeads * kFresh;
  static constexpr int kGroups = kColumns > 128 ? 2 : 3;  // math warpgroups: 64 x 256 products take most of a thread's registers
  static constexpr int kMathRegisters = kGroups == 2 ? 232 : 152, kCopyRegisters = 40;
  static constexpr int kThreads = (kGroups + 1) * kWarpgroup;
  // 12 pages are 100 KB under way: with 18, B=16 took 9 % longer, with 6, B=64 took 2 to 4 %.
  static constexpr int kStages = kColumns > 128 ? 16 : 12;
  // Each stage belongs to one copying warp and one math group: a barrier tells only neighbouring phases apart, and copies may land
  // out of order, so that another group could take a phase that has not begun for one that is over.
  static_assert(kStages % kCopiers == 0 && kStages % kGroups == 0);

  struct Memory {
    alignas(1024) uint8_t queries[2][kColumns * kWidth];
    struct alignas(1024) {
      uint8_t bytes[kPageLines * kWidth];
    } pages[kStages];
    alignas(16) float weights[2][kColumns];
    uint64_t full[kStages], empty[kStages], queries_full[2], queries_empty[2];
    Run run[2];
  };
  static_assert(sizeof(Memory) <= 227 * 1024);
};

// This CTA's share, as one run of pages after another, each of one item: kFresh new tokens of one sequence. Whole warps call this.
template <int kFresh>
struct PagedRuns {
  const Paged& p;
  int parts, skip = 0, left = 0;
  Run run;

  __device__ __forceinline__ int pages(int item) const {
    const int length = min(__ldg(p.lengths + item / parts), min(p.max_context, p.columns * kKeys));
    return max(length + kKeys - 1, 0) / kKeys;
  }

  __device__ __forceinline__ explicit PagedRuns(const Paged& problem) : p(problem), parts((p.fresh + kFresh - 1) / kFresh) {
    const int lane = threadIdx.x & 31, items = p.sequences * parts;
    int sum = 0;
    for (int at = lane; at < items; at += 32) sum += pages(at);
    const int64_t total = __reduce_add_sync(~0u, sum);
    const int first = static_cast<int>(total * blockIdx.x / gridDim.x);
    const int last = static_cast<int>(total * (blockIdx.x + 1) / gridDim.x);
    if (first == last) return;
    left = last - first;
    for (int at = 0, before = 0;; at += 32) {  // ends where `first` lies
      const int mine = at + lane < items ? pages(at + lane) : 0;
      int through = mine;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(~0u, through, step);
        if (lane >= step) through += other;
      }
      const uint32_t found = __ballot_sync(~0u, before + through > first);
      if (found != 0) {
        const int owner = __ffs(found) - 1;
        skip = first - before - __shfl_sync(~0u, through - mine, owner);
        run.item = at + owner - 1;
        return;
      }
      before += __shfl_sync(~0u, through, 31);
    }
  }
  __device__ __forceinline__ bool next() {
    if (left == 0) return false;
    int count;
    do count = pages(++run.item);
    while (count == 0);
    run.begin = skip;
    run.end = min(count, run.begin + left);
    left -= run.end - run.begin;
    skip = 0;
    return true;
  }
};

// Every kCopiers-th page, from number `first` of the CTA's share on: one thread cannot start copies as fast as L2 serves them.
template <int kHeads, int kFresh>
__device__ void copy_pages(const Paged& p, const CUtensorMap& page_map, typename PagedShape<kHeads, kFresh>::Memory& s, int first) {
  const int lane = threadIdx.x & 31;
  Ring<PagedShape<kHeads, kFresh>::kStages> ring;
  ring.advance(first);
  for (PagedRuns<kFresh> runs(p); runs.next();) {
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

template <int kHeads, int kFresh>
__device__ void copy_queries(const Paged& p, const CUtensorMap& query_map, typename PagedShape<kHeads, kFresh>::Memory& s) {
  const int lane = threadIdx.x & 31;
  Ring<2> ring;
  PagedRuns<kFresh> runs(p);
  for (bool more = true; more; ring.advance()) {
    more = runs.next();
    wait(&s.queries_empty[ring.stage], ring.parity ^ 1);
    uint64_t* full = &s.queries_full[ring.stage];
    if (more) {
      const int sequence = runs.run.item / runs.parts, fresh = runs.run.item % runs.parts * kFresh;
      if (lane == 0) {
        s.run[ring.stage] = runs.run;
        arrive_expect(full, sizeof(s.queries[0]));
        copy_box(s.queries[ring.stage], query_map, 0, 0, sequence * p.fresh + fresh, full);
      }
      copy_weights<kHeads, kFresh>(s.weights[ring.stage], p.weights + sequence * p.weight_stride + fresh * p.weight_row_stride,
                                   p.weight_row_stride, p.fresh - fresh, p.heads);
      if (lane != 0) arrive(full);
    } else {
      if (lane == 0) s.run[ring.stage].begin = -1;
      arrive(full);
    }
  }
}

// A page's scales are its last two lines of 128 bytes, the second of them with neighbouring 16-byte pieces swapped by the swizzle.
__device__ __forceinline__ float scale_of(const uint8_t* page, int key) {
  return reinterpret_cast<const float*>(page + kKeys * kWidth)[key < 32 ? key : key ^ 4];
}

template <int kHeads, int kFresh>
__device__ void paged_math(const Paged& p, typename PagedShape<kHeads, kFresh>::Memory& s) {
  using Shape = PagedShape<kHeads, kFresh>;
  constexpr int kColumns = Shape::kColumns;
  using All = Sums<kHeads, kColumns>;
  const int group = threadIdx.x / kWarpgroup, lane = threadIdx.x & 31, parts = (p.fresh + kFresh - 1) / kFresh;
  float d[kColumns / 2], weights[kColumns / 4];
  Ring<Shape::kStages> ring;
  ring.advance(group);
  int first = group;  // of this group's pages in the run
  for (Ring<2> queries;; queries.advance()) {
    wait(&s.queries_full[queries.stage], queries.parity);
    const Run run = s.run[queries.stage];
    if (run.begin < 0) break;
    load_weights<kColumns>(weights, s.weights[queries.stage]);
    const uint32_t q = shared_address(s.queries[queries.stage]);
    const int sequence = run.item / parts, fresh = run.item % parts * kFresh + All::query();
    float* out = p.out + (int64_t(sequence) * p.fresh + fresh) * p.out_stride + All::key();
    const int rows = All::writes() ? p.fresh - fresh : 0;
    int at = run.begin + first;
    for (; at < run.end; at += Shape::kGroups, ring.advance(Shape::kGroups)) {
      const uint8_t* page = s.pages[ring.stage].bytes;
      wait(&s.full[ring.stage], ring.parity);
      multiply<kColumns>(d, shared_address(page), q);
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

template <int kHeads, int kFresh>
__global__ void __launch_bounds__(PagedShape<kHeads, kFresh>::kThreads, 1)
    paged_indexer_logits_kernel(const __grid_constant__ Paged p, const __grid_constant__ CUtensorMap query_map,
                                const __grid_constant__ CUtensorMap page_map) {
  using Shape = PagedShape<kHeads, kFresh>;
  extern __shared__ __align__(1024) uint8_t memory[];
  auto& s = *reinterpret_cast<typename Shape::Memory*>(memory);
  const int thread = threadIdx.x;
  if (thread < Shape::kStages) {
    barrier_init(shared_address(&s.full[thread]), 1);
    barrier_init(shared_address(&s.empty[thread]), 4);  // warps of the group whose page it is
  }
  if (thread < 2) {
    barrier_init(shared_address(&s.queries_full[thread]), 32);
    barrier_init(shared_address(&s.queries_empty[thread]), 4 * Shape::kGroups);
  }
  if (thread < 32) barrier_init_fence();
  if (thread == kWarpgroup) {
    prefetch_map(query_map);
    prefetch_map(page_map);
  }
  __syncthreads();
  if (thread >= Shape::kGroups * kWarpgroup) {
    shrink_registers<Shape::kCopyRegisters>();
    const int warp = thread / 32 % 4;
    if (warp < kCopiers) copy_pages<kHeads, kFresh>(p, page_map, s, warp);
    if (warp == kCopiers) copy_queries<kHeads, kFresh>(p, query_map, s);
  } else {
    grow_registers<Shape::kMathRegisters>();
    paged_math<kHeads, kFresh>(p, s);
  }
}

}  // namespace indexer
