// The arguments of this folder's kernels, and how they write a selected position.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "../common/lane_sums.cuh"
#include "../common/pdl.cuh"

namespace topk {

using namespace common;

// ---- The parts of a radix select: integer keys that order values and positions, histograms of digits, prefix sums over a CTA, cluster
// barriers.

constexpr int kDigitBits = 11;
constexpr int kDigits = 1 << kDigitBits;
constexpr int kPositionBits = 23;                // 32 bits of the value and 23 of the position make five digits
constexpr int kFirstShift = 4 * kDigitBits;      // shift of the highest digit
constexpr float kLowest = -3.402823466e38f;      // values >= this are neither NaN nor -inf
constexpr int kLogStretch = 6;                   // one sample for 64 values, but at least a thousand samples
constexpr int kFew = 64;                         // candidates that are compared with each other one by one
constexpr int kStaged = 2048;                    // positions staged in shared memory before they are written; the released k
constexpr int kMostGroups = 2 * kDigits;         // groups of 64 columns; their 16-bit counts fit into a histogram
constexpr unsigned kWarp = 0xffffffffu;

struct Found {
  uint32_t digit;  // the digit of the needed-th best entry
  uint32_t above;  // entries with higher digits
  uint32_t count;  // entries with this digit
  uint32_t total;
};

struct Shared {
  uint32_t histogram[kDigits];
  uint64_t few[kFew];   // ranks of the candidates that share the digit of the last selected one
  uint32_t warp_sums[2][32];
  int32_t selected[kStaged];  // positions, staged before they are written
  Found found;
  uint32_t candidates;  // number of this CTA's own, from the first entry on
  uint32_t received;    // in the leader: number of the other CTAs' candidates, from the last entry down
  uint32_t highest;     // in the leader: the highest key of all candidates
  uint32_t few_count;
  uint32_t base;
  uint32_t lacking;     // whether the values at the level and above it are fewer than k
  alignas(16) uint2 entries[];  // [capacity]: (bits of the value, later its key; position); the bitmap follows
};

inline size_t shared_bytes(int capacity, int columns) {
  return sizeof(Shared) + size_t(capacity) * 8 + (size_t(columns) + 63) / 64 * 8;
}

// Keys have the order of values as unsigned integers; both zeros have the key of +0.
__device__ __forceinline__ uint32_t key_of(float value) {
  const uint32_t bits = __float_as_uint(value + 0.0f);
  return bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000u);
}
__device__ __forceinline__ float value_of(uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key);
}
__device__ __forceinline__ uint64_t rank_of(float value, int position) {
  return (uint64_t(key_of(value)) << kPositionBits) | uint32_t((1 << kPositionBits) - 1 - position);
}
__device__ __forceinline__ uint64_t rank_of(uint2 entry) {  // entry: a key and a position
  return (uint64_t(entry.x) << kPositionBits) | ((1u << kPositionBits) - 1 - entry.y);
}
__device__ __forceinline__ uint32_t position_of(uint64_t rank) {
  return (1u << kPositionBits) - 1 - (uint32_t(rank) & ((1u << kPositionBits) - 1));
}

// Cluster barriers, split into arrive and wait. With cooperative_groups every thread would execute a GPU-wide memory barrier at each
// arrival. One warp's release covers the writes of the whole CTA if __syncthreads orders them before it, and a CTA that has written
// nothing for others arrives without release.
__device__ __forceinline__ void cluster_arrive(bool release) {
  if (release)
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  else
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
__device__ __forceinline__ void cluster_sync() {
  __syncthreads();
  cluster_arrive(threadIdx.x < 32);
  cluster_wait();
}

struct Scan {
  uint32_t before, total;
};

// The sum over the threads before this one, and over all threads. It has one barrier only, so that successive calls must alternate between
// two buffers of 32.
template <int kThreads>
__device__ __forceinline__ Scan block_scan(uint32_t value, uint32_t* warp_sums) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t sum = sum_through(value, lane);
  if (lane == 31) warp_sums[warp] = sum;
  __syncthreads();
  const uint32_t warps = sum_through<kThreads / 32>(lane < kThreads / 32 ? warp_sums[lane] : 0, lane);
  const uint32_t earlier = __shfl_sync(kWarp, warps, (warp + 31) % 32);
  return {sum - value + (warp ? earlier : 0), __shfl_sync(kWarp, warps, kThreads / 32 - 1)};
}

template <int kThreads>
__device__ __forceinline__ void clear_histogram(Shared& shared) {
#pragma unroll
  for (int i = 0; i < kDigits / kThreads; ++i) shared.histogram[i * kThreads + threadIdx.x] = 0;
}

// Finds the digit of the needed-th best entry in a complete histogram. If there are fewer entries, only `total` is valid.
template <int kThreads, class AnyShared>
__device__ __forceinline__ Found find_digit(AnyShared& shared, uint32_t needed) {
  constexpr int kAll = sizeof(shared.histogram) / sizeof(uint32_t), kMine = kAll / kThreads;
  const int first = kAll - (threadIdx.x + 1) * kMine;  // thread 0 has the highest digits
  static_assert(kMine == 4);
  const uint4 four = *reinterpret_cast<const uint4*>(shared.histogram + first);
  const uint32_t counts[kMine] = {four.x, four.y, four.z, four.w};
  uint32_t sum = 0;
#pragma unroll
  for (int i = 0; i < kMine; ++i) sum += counts[i];
  const Scan scan = block_scan<kThreads>(sum, shared.warp_sums[0]);
  uint32_t above = scan.before;
  if (above < needed && needed <= above + sum) {
#pragma unroll
    for (int i = kMine - 1; i >= 0; --i) {
      if (above < needed && needed <= above + counts[i]) shared.found = {uint32_t(first + i), above, counts[i], scan.total};
      above += counts[i];
    }
  }
  if (threadIdx.x == 0 && scan.total < needed) shared.found = {0, 0, 0, scan.total};
  __syncthreads();
  return shared.found;
}

struct Problem {
  const float* logits;
  int64_t row_stride;
  const int32_t* starts;  // null: all zero
  const int32_t* ends;
  const int32_t* block_table;  // or null: write positions
  int64_t table_stride;
  int32_t* out;                // [rows, k]
  int32_t* record;             // or null; [rows, 2, k]: positions, and the bits of their logits; only without starts
  int64_t record_stride;       // between rows
  int columns, k;
  int page_size, page_shift;   // page_shift: log2 of page_size, or -1 if it is no power of two
  int capacity;                // the most candidates that fit; not for short rows
};

__device__ __forceinline__ int slot_of(const Problem& p, const int32_t* pages, int position) {
  if (p.page_shift >= 0) return (pages[position >> p.page_shift] << p.page_shift) + (position & (p.page_size - 1));
  return pages[position / p.page_size] * p.page_size + position % p.page_size;
}

__device__ __forceinline__ void write(const Problem& p, int row, uint32_t to, int position) {
  const int32_t* pages = p.block_table ? p.block_table + row * p.table_stride : nullptr;
  p.out[int64_t(row) * p.k + to] = pages ? slot_of(p, pages, position) : position;
  if (p.record == nullptr) return;
  int32_t* record = p.record + row * p.record_stride + to;
  record[0] = position;
  record[p.k] = __float_as_int(__ldg(p.logits + row * p.row_stride + position));
}

__device__ __forceinline__ void write_none(const Problem& p, int row, uint32_t to) {
  p.out[int64_t(row) * p.k + to] = -1;
  if (p.record != nullptr) p.record[row * p.record_stride + to] = -1;
}

}  // namespace topk
