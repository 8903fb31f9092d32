// What a radix select needs: an order of values and positions as integers, histograms of digits, sums over a CTA, cluster barriers.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace topk {

constexpr int kDigitBits = 11;
constexpr int kDigits = 1 << kDigitBits;
constexpr int kPositionBits = 23;                // 32 of the value and 23 of the position are five digits
constexpr int kFirstShift = 4 * kDigitBits;      // of the highest digit
constexpr float kLowest = -3.402823466e38f;      // >= this: neither NaN nor -inf
constexpr int kLogStretch = 6;                   // one sample in 64 values, but a thousand at least
constexpr int kFew = 64;
constexpr int kStaged = 2048;                    // positions that are written through shared memory, the released model's k
constexpr int kMostGroups = 2 * kDigits;         // of 64 columns, whose 16-bit counts find room in a histogram
constexpr unsigned kWarp = 0xffffffffu;

struct Found {
  uint32_t digit;  // of the needed-th best
  uint32_t above;  // entries of higher digits
  uint32_t count;  // entries of this digit
  uint32_t total;
};

struct Shared {
  uint32_t histogram[kDigits];
  uint64_t few[kFew];   // ranks that the last choice is among
  uint32_t warp_sums[2][32];
  int32_t chosen[kStaged];  // on their way out
  Found found;
  uint32_t candidates;  // of this CTA, from the first entry on
  uint32_t received;    // in the leader: those of the other CTAs, from the last entry down
  uint32_t highest;     // key among all candidates
  uint32_t few_count;
  uint32_t base;
  uint32_t lacking;     // the level and what is above it are fewer than k
  alignas(16) uint2 entries[];  // [capacity] of a value's bits, later its key, and its position; then the bitmap
};

inline size_t shared_bytes(int capacity, int columns) {
  return sizeof(Shared) + size_t(capacity) * 8 + (size_t(columns) + 63) / 64 * 8;
}

// Unsigned order of keys is the order of values; both zeros have the key of +0.
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
__device__ __forceinline__ uint64_t rank_of(uint2 entry) {  // of a key and a position
  return (uint64_t(entry.x) << kPositionBits) | ((1u << kPositionBits) - 1 - entry.y);
}
__device__ __forceinline__ uint32_t position_of(uint64_t rank) {
  return (1u << kPositionBits) - 1 - (uint32_t(rank) & ((1u << kPositionBits) - 1));
}

// Cluster barriers in halves. cooperative_groups would have every thread wait for a GPU-wide memory barrier at each arrival; one
// warp's announces the whole CTA's writes if they are ordered before it by __syncthreads, and who announces nothing needs none.
__device__ __forceinline__ void cluster_arrive(bool announce) {
  if (announce)
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

// Sums of the threads before this one, and of all. One barrier: successive calls must alternate between two buffers of 32.
template <int kThreads>
__device__ __forceinline__ Scan block_scan(uint32_t value, uint32_t* warp_sums) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint32_t sum = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t other = __shfl_up_sync(kWarp, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == 31) warp_sums[warp] = sum;
  __syncthreads();
  uint32_t warps = lane < kThreads / 32 ? warp_sums[lane] : 0;
#pragma unroll
  for (int step = 1; step < kThreads / 32; step *= 2) {
    const uint32_t other = __shfl_up_sync(kWarp, warps, step);
    if (lane >= step) warps += other;
  }
  const uint32_t earlier = __shfl_sync(kWarp, warps, (warp + 31) % 32);
  return {sum - value + (warp ? earlier : 0), __shfl_sync(kWarp, warps, kThreads / 32 - 1)};
}

template <int kThreads>
__device__ __forceinline__ void clear_histogram(Shared& shared) {
#pragma unroll
  for (int i = 0; i < kDigits / kThreads; ++i) shared.histogram[i * kThreads + threadIdx.x] = 0;
}

// The digit of the needed-th best entry of a complete histogram. If there are fewer entries, only `total` means anything.
template <int kThreads>
__device__ __forceinline__ Found find_digit(Shared& shared, uint32_t needed) {
  constexpr int kMine = kDigits / kThreads;
  const int first = kDigits - (threadIdx.x + 1) * kMine;  // thread 0 has the highest digits
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

}  // namespace topk
