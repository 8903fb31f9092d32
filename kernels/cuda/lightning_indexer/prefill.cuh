// Ragged prefill. The (block of queries, tile of keys) pairs, in order, are divided equally among the CTAs. A CTA has three math
// warpgroups, each with its own queries, which share the keys, and two producer warps.
#pragma once

#include <climits>

#include "scores.cuh"

namespace indexer {

struct Prefill {
  const float* weights;  // [rows, heads]
  int64_t weight_stride;
  const int32_t *starts, *ends;  // [rows]
  float* out;                    // [rows, keys]
  int64_t out_stride;
  int rows, keys, heads;
};

constexpr int kTile = 128;     // keys per stage
constexpr int kColumns = 128;  // (query, head) pairs per warpgroup
constexpr int kGroups = 3;     // math warpgroups
constexpr int kPrefillStages = 7;
constexpr int kPrefillThreads = (kGroups + 1) * kWarpgroup;

// The queries of a block: all that a CTA computes at once.
template <int kHeads>
constexpr int kQueries = kGroups * kColumns / kHeads;

struct PrefillMemory {
  alignas(1024) uint8_t queries[2][kGroups][kColumns * kWidth];  // two buffers of runs, for each warpgroup
  alignas(1024) uint8_t keys[kPrefillStages][kTile * kWidth];
  alignas(128) float scales[kPrefillStages][kTile];
  alignas(16) float weights[2][kGroups][kColumns];
  uint64_t full[kPrefillStages], empty[kPrefillStages], queries_full[2], queries_empty[2];
  Run run[2];
  int sums[2][kPrefillThreads / 32];
  Run share;  // item: the first block; begin: units of it that earlier CTAs do; end: the number of units of this CTA
};
static_assert(sizeof(PrefillMemory) <= 227 * 1024);

// The first key of a query and the one past its last; an empty range for rows that do not exist.
__device__ __forceinline__ int2 keys_of(const Prefill& p, int row) {
  const int at = min(row, p.rows - 1);
  const int start = max(__ldg(p.starts + at), 0), end = min(__ldg(p.ends + at), p.keys);
  return row < p.rows && start < end ? make_int2(start, end) : make_int2(INT_MAX, 0);
}
// The tiles [x, y) that hold keys [low, high).
__device__ __forceinline__ int2 tiles_of(int low, int high) {
  return low < high ? make_int2(low / kTile, (high + kTile - 1) / kTile) : make_int2(0, 0);
}
// The units of work of a block of queries: its tiles, and one for fetching the queries. Without that one, CTAs whose blocks have few keys
// would finish last.
__device__ __forceinline__ int units_of(int2 tiles) { return tiles.x < tiles.y ? tiles.y - tiles.x + 1 : 0; }

// Computes this CTA's share of the units of all blocks, and stores it in s.share. Every loop takes the same number of turns in all
// threads: after one that does not, the compiler keeps nothing in uniform registers (see `uniform`).
template <int kHeads>
__device__ void find_share(const Prefill& p, PrefillMemory& s) {
  constexpr int kWarps = kPrefillThreads / 32;
  const int blocks = (p.rows + kQueries<kHeads> - 1) / kQueries<kHeads>, lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  auto count = [&](int block) {
    int low = INT_MAX, high = 0;
#pragma unroll
    for (int i = 0; i < kQueries<kHeads>; ++i) {
      const int2 keys = keys_of(p, block * kQueries<kHeads> + i);
      low = min(low, keys.x);
      high = max(high, keys.y);
    }
    return units_of(tiles_of(low, high));
  };
  int sum = 0;
  for (int from = 0; from < blocks; from += kPrefillThreads) sum += count(from + static_cast<int>(threadIdx.x));
  sum = __reduce_add_sync(~0u, sum);
  if (lane == 0) s.sums[0][warp] = sum;
  __syncthreads();
  int64_t total = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) total += s.sums[0][i];
  const int first = static_cast<int>(total * blockIdx.x / gridDim.x);
  const int last = static_cast<int>(total * (blockIdx.x + 1) / gridDim.x);
  if (threadIdx.x == 0) s.share.end = last - first;
  int before = 0;  // units of the blocks before `from`
  for (int from = 0, turn = 1; from < blocks; from += kPrefillThreads, turn ^= 1) {
    const int block = from + static_cast<int>(threadIdx.x), mine = count(block);
    int through = sum_through(mine, lane);
    if (lane == 31) s.sums[turn][warp] = through;
    __syncthreads();
    int all = 0;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) {
      if (i == warp) through += before + all;
      all += s.sums[turn][i];
    }
    before += all;
    if (first < last && through - mine <= first && first < through) {
      s.share.item = block;
      s.share.begin = first - (through - mine);
    }
  }
  __syncthreads();
}

// Iterates over the runs of this CTA's share: consecutive tiles of one block of queries. Whole warps call it.
template <int kHeads>
struct PrefillRuns {
  const Prefill& p;
  int skip, left;  // units
  Run run;

  __device__ __forceinline__ PrefillRuns(const Prefill& problem, const PrefillMemory& s)
      : p(problem), skip(s.share.begin), left(s.share.end) {
    run.item = s.share.item - 1;
  }
  __device__ __forceinline__ bool next() {
    while (left > 0) {
      const int lane = threadIdx.x & 31;
      ++run.item;
      const int2 keys = keys_of(p, lane < kQueries<kHeads> ? run.item * kQueries<kHeads> + lane : p.rows);
      const int2 tiles = tiles_of(__reduce_min_sync(~0u, keys.x), __reduce_max_sync(~0u, keys.y));
      const int through = min(units_of(tiles), skip + left);
      run.begin = tiles.x + max(skip - 1, 0);  // unit 0 is the fetch of the queries
      run.end = tiles.x + max(through - 1, 0);
      left -= through - skip;
      skip = 0;
      if (run.begin < run.end) return true;
    }
    return false;
  }
};

template <int kHeads>
__device__ void copy_keys(const Prefill& p, const CUtensorMap& key_map, const CUtensorMap& scale_map, PrefillMemory& s) {
  Ring<kPrefillStages> ring;
  for (PrefillRuns<kHeads> runs(p, s); runs.next();)
    for (int tile = runs.run.begin; tile < runs.run.end; ++tile, ring.advance())
      if ((threadIdx.x & 31) == 0) {
        uint64_t* full = &s.full[ring.stage];
        wait(&s.empty[ring.stage], ring.parity ^ 1);
        arrive_expect(full, sizeof(s.keys[0]) + sizeof(s.scales[0]));
        copy_box(s.keys[ring.stage], key_map, 0, tile * kTile, 0, full);
        copy_line(s.scales[ring.stage], scale_map, tile * kTile, full);
      }
}

template <int kHeads>
__device__ void copy_queries(const Prefill& p, const CUtensorMap& query_map, PrefillMemory& s) {
  const int lane = threadIdx.x & 31;
  Ring<2> ring;
  PrefillRuns<kHeads> runs(p, s);
  for (bool more = true; more; ring.advance()) {
    more = runs.next();
    wait(&s.queries_empty[ring.stage], ring.parity ^ 1);
    uint64_t* full = &s.queries_full[ring.stage];
    if (more) {
      const int first = runs.run.item * kQueries<kHeads>;
      if (lane == 0) {
        s.run[ring.stage] = runs.run;
        arrive_expect(full, sizeof(s.queries[0]));
        copy_box(s.queries[ring.stage], query_map, 0, 0, first, full);
      }
      copy_weights<kHeads, kQueries<kHeads>>(s.weights[ring.stage][0], p.weights + first * p.weight_stride, p.weight_stride,
                                             p.rows - first, p.heads);
      __syncwarp();  // lane 0 has arrived already: its weights are there before the others arrive
      if (lane != 0) arrive(full);
    } else {
      if (lane == 0) s.run[ring.stage].begin = -1;
      arrive(full);
    }
  }
}

// A predicated store, not a branch: between branches, the next MMA cannot be started before the rest of this one's sums.
__device__ __forceinline__ void store_if(bool condition, float* to, float value) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %0, 0;\n@p st.global.cs.f32 [%1], %2;\n}\n" ::"r"(int(condition)), "l"(to), "f"(value)
               : "memory");
}

template <int kHeads>
__device__ void prefill_math(const Prefill& p, PrefillMemory& s, int group) {
  using All = Sums<kHeads, kColumns>;
  const int lane = threadIdx.x & 31;
  float d[kColumns / 2], weights[kColumns / 4];
  Ring<kPrefillStages> ring;
  for (Ring<2> queries;; queries.advance()) {
    wait(&s.queries_full[queries.stage], queries.parity);
    const Run& run = s.run[queries.stage];
    const int begin = uniform(run.begin), end = uniform(run.end);
    if (begin < 0) break;
    load_weights<kColumns>(weights, s.weights[queries.stage][group]);
    const uint32_t q = descriptor(s.queries[queries.stage][group]);
    const int row = (run.item * kGroups + group) * (kColumns / kHeads) + All::query(), rows = p.rows - row;
    float* line = p.out + row * p.out_stride;
    for (int tile = begin; tile < end; ++tile, ring.advance()) {
      wait(&s.full[ring.stage], ring.parity);
#pragma unroll
      for (int half = 0; half < kTile / kKeys; ++half) {
        multiply_words<kColumns>(d, descriptor(s.keys[ring.stage] + half * kKeys * kWidth), q);
        float scale[All::kHeldKeys];
#pragma unroll
        for (int i = 0; i < All::kHeldKeys; ++i) scale[i] = s.scales[ring.stage][half * kKeys + All::key() + 8 * i];
        mma_wait<0>();
        hold(d);
        All sums;
        sums.add_up(d, weights);
#pragma unroll
        for (int v = 0; v < All::kHeld; ++v) {
          const int column = tile * kTile + half * kKeys + 8 * (v & 1) + All::key();
          store_if(v / 2 < rows && column < p.keys, line + (v / 2 * p.out_stride + column), sums.value[v] * scale[v & 1]);
        }
      }
      __syncwarp();
      if (lane == 0) arrive(&s.empty[ring.stage]);
    }
    __syncwarp();
    if (lane == 0) arrive(&s.queries_empty[queries.stage]);
  }
}

// kHeads: the number of heads of a query, padded to 16, 32 or 64.
template <int kHeads>
__global__ void __launch_bounds__(kPrefillThreads, 1)
    indexer_logits_kernel(const __grid_constant__ Prefill p, const __grid_constant__ CUtensorMap query_map,
                          const __grid_constant__ CUtensorMap key_map, const __grid_constant__ CUtensorMap scale_map) {
  extern __shared__ __align__(1024) uint8_t memory[];
  PrefillMemory& s = *reinterpret_cast<PrefillMemory*>(memory);
  if (threadIdx.x == 0) {
    prefetch_map(&query_map);
    prefetch_map(&key_map);
    prefetch_map(&scale_map);
    for (int i = 0; i < kPrefillStages; ++i) {
      barrier_init(shared_address(&s.full[i]), 1);
      barrier_init(shared_address(&s.empty[i]), 4 * kGroups);  // math warps
    }
    for (int i = 0; i < 2; ++i) {
      barrier_init(shared_address(&s.queries_full[i]), 32);
      barrier_init(shared_address(&s.queries_empty[i]), 4 * kGroups);
    }
    barrier_init_fence();
  }
  find_share<kHeads>(p, s);
  const int group = uniform(threadIdx.x / kWarpgroup);
  if (group == kGroups) {
    shrink_registers<32>();
    const int warp = threadIdx.x / 32 % 4;
    if (warp == 0) copy_keys<kHeads>(p, key_map, scale_map, s);
    if (warp == 1) copy_queries<kHeads>(p, query_map, s);
  } else {
    grow_registers<160>();
    prefill_math<kHeads>(p, s, group);
  }
}

}  // namespace indexer
