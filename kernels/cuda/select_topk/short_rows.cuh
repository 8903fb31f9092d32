// Exact top-k of fp32 rows that one CTA can hold (up to 16384 columns): every value is a candidate and stays where it is.
//
// A histogram over equal intervals between the lowest and the highest value finds the interval of the k-th best. Nearly always it holds
// few values, which are compared with each other. Otherwise a radix select over ranks (value, position), digit by digit, finds the last
// that is selected. All threads then know what they select, and a prefix sum over the CTA gives each position its place, in ascending
// order.
#pragma once

#include "problem.cuh"

namespace topk {

constexpr int kFewShort = 128;  // values that are compared with each other one by one; more cost what another histogram costs

template <int kThreads>
struct ShortShared {
  uint32_t histogram[4 * kThreads];
  int32_t selected[kStaged];  // positions, staged before they are written
  uint64_t few[kFewShort];    // ranks of the values in the interval of the last selected one
  uint32_t warp_sums[2][32];
  uint32_t lowest[32], highest[32];  // keys, by warp
  uint32_t selected_counts[32];      // by warp; one byte for each vector
  Found found;
  uint32_t few_count;
  uint64_t least;  // the lowest rank selected
};

// Ranks within a row of at most 16384 columns, in the high bits, so that digits can be taken from the top.
__device__ __forceinline__ uint64_t short_rank(float value, int column) {
  return uint64_t(key_of(value)) << 32 | uint32_t(16383 - column) << 18;
}

// Maps values to 0..1 so that a higher value never has a lower place, whatever the values are; NaN is at 0.
struct Scale {
  float factor, offset;

  __device__ __forceinline__ Scale(float lowest, float highest) {
    const float range = highest - lowest;
    factor = range > 1e-30f ? __fdividef(1.0f, range) : 0.0f;  // without values, range is -inf
    offset = -lowest * factor;
  }
  template <int kPlaces>
  __device__ __forceinline__ uint32_t place(float value) const {
    // 2^23 added: the low bits of the sum are the rounded number. A conversion would take four times as long.
    const float sum = fmaf(__saturatef(fmaf(value, factor, offset)), float(kPlaces - 1), 8388608.0f);
    return __float_as_uint(sum) & (kPlaces - 1);
  }
};

// Selects from the `length` columns from `first` on, and writes columns plus `offset`. They lie within 4 * kThreads * kVectors values,
// counted from the 16-byte boundary at or below `logits`; `columns` values from `logits` on can be read. A thread keeps its values in
// `values`: in registers or, if kRolled, at every kThreads-th place of shared memory. Loops are not unrolled then, as instructions that few
// CTAs run come from memory, which takes longer.
template <int kThreads, int kVectors, bool kRolled>
__device__ __forceinline__ void select_short(ShortShared<kThreads>& shared, float* values, const Problem& p, const float* logits,
                                             int columns, int first, int length, int offset, int row) {
  asm volatile("" : "+r"(row));  // addresses are computed here: shared with the kernel for long rows, they would take registers there
  constexpr int kStride = kRolled ? kThreads : 1, kUnroll = kRolled ? 1 : kVectors;
  constexpr int kWarps = kThreads / 32, kPlaces = 4 * kThreads, kBits = kThreads == 1024 ? 12 : 11;
  static_assert(kPlaces == 1 << kBits && kVectors <= 4 && kWarps * kVectors % 32 == 0);
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const int skip = static_cast<int>(reinterpret_cast<uintptr_t>(logits) / sizeof(float) % 4);
  // A thread's first load does not wait for the row's bounds. All 16 bytes around a value can be read, but not by __ldg: the compiler may
  // place it before pdl_wait.
  float4 loaded[kVectors];
  const auto load = [&](int v, int end) {
    const int column = 4 * (v * kThreads + thread) - skip;
    if (column + 3 >= 0 && column < end) loaded[v] = *reinterpret_cast<const float4*>(logits + column);
  };
#pragma unroll
  for (int v = 0; v < kVectors; ++v) loaded[v] = make_float4(NAN, NAN, NAN, NAN);
  load(0, columns);
  // A row of at most k values is selected whole. That is written before the values are there, and again, as below, if they show NaN or -inf.
  if (length <= p.k && skip + first + length <= 4 * kThreads) {
#pragma unroll 1
    for (int i = thread; i < p.k; i += kThreads) {
      if (i < length)
        write(p, row, i, i + first + offset);
      else
        write_none(p, row, i);
    }
    const float four[4] = {loaded[0].x, loaded[0].y, loaded[0].z, loaded[0].w};
    bool all = true;
#pragma unroll
    for (int e = 0; e < 4; ++e) all &= uint32_t(4 * thread + e - skip - first) >= uint32_t(length) || four[e] >= kLowest;
    if (__syncthreads_and(all)) return;
  }
#pragma unroll
  for (int v = 1; v < kVectors; ++v) load(v, first + length);
  reinterpret_cast<uint4*>(shared.histogram)[thread] = make_uint4(0, 0, 0, 0);
  if (thread == 0) shared.few_count = 0, shared.least = 0;

  // Values that cannot be selected become NaN, which minimum and maximum ignore.
  float lowest = INFINITY, highest = -INFINITY;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const float four[4] = {loaded[v].x, loaded[v].y, loaded[v].z, loaded[v].w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const uint32_t within = 4 * (v * kThreads + thread) + e - skip - first;
      const float value = within < uint32_t(length) && four[e] >= kLowest ? four[e] : NAN;
      values[(4 * v + e) * kStride] = value;
      lowest = fminf(lowest, value);
      highest = fmaxf(highest, value);
    }
  }
  const int vectors = kRolled ? (skip + first + length + 4 * kThreads - 1) / (4 * kThreads) : kVectors;
  // Selected are values at higher places than found.digit, and those there with the rank `least` or more: at first, all.
  Scale scale(0, 0);
  Found found = {};
  uint64_t least = 0;
  if (length > p.k) {
    const uint32_t lowest_key = __reduce_min_sync(kWarp, key_of(lowest)), highest_key = __reduce_max_sync(kWarp, key_of(highest));
    if (lane == 0) shared.lowest[warp] = lowest_key, shared.highest[warp] = highest_key;
    __syncthreads();
    lowest = value_of(__reduce_min_sync(kWarp, shared.lowest[lane % kWarps]));
    highest = value_of(__reduce_max_sync(kWarp, shared.highest[lane % kWarps]));
    scale = Scale(lowest, fminf(highest, -kLowest));

#pragma unroll kUnroll
    for (int v = 0; v < vectors; ++v) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float value = values[(4 * v + e) * kStride];
        if (value >= kLowest) atomicAdd(&shared.histogram[scale.place<kPlaces>(value)], 1);
      }
    }
    __syncthreads();
    found = find_digit<kThreads>(shared, p.k);  // place 0 if all are selected

    // Calls visit(rank) for this thread's values at the place found.
    const auto visit_place = [&](auto visit) {
#pragma unroll kUnroll
      for (int v = 0; v < vectors; ++v) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float value = values[(4 * v + e) * kStride];
          if (scale.place<kPlaces>(value) == found.digit && value >= kLowest)
            visit(short_rank(value, 4 * (v * kThreads + thread) + e - skip));
        }
      }
    };
    const uint32_t needed = p.k - found.above;
    if (found.total > p.k && found.count != needed) {
      if (found.count <= kFewShort) {
        visit_place([&](uint64_t rank) { shared.few[atomicAdd(&shared.few_count, 1)] = rank; });
        __syncthreads();
        if (thread < found.count) {
          const uint64_t mine = shared.few[thread];
          uint32_t above = 0;
#pragma unroll 4
          for (uint32_t i = 0; i < found.count; ++i) above += shared.few[i] > mine;
          if (above + 1 == needed) shared.least = mine;
        }
      } else {
        uint64_t prefix = 0;
        uint32_t lacking = needed;
        for (int shift = 64 - kBits;; shift -= kBits) {
          reinterpret_cast<uint4*>(shared.histogram)[thread] = make_uint4(0, 0, 0, 0);
          __syncthreads();
          visit_place([&](uint64_t rank) {
            if (rank >> shift >> kBits == prefix) atomicAdd(&shared.histogram[uint32_t(rank >> shift) % kPlaces], 1);
          });
          __syncthreads();
          const Found digit = find_digit<kThreads>(shared, lacking);
          prefix = prefix << kBits | digit.digit;
          lacking -= digit.above;
          if (digit.count != lacking) continue;  // not at the last digit, since all ranks differ
          if (thread == 0) shared.least = prefix << shift;
          break;
        }
      }
      __syncthreads();
    }
    least = shared.least;
  }

  uint32_t selects = 0, mine = 0;  // mine: how many in each vector, by byte
#pragma unroll kUnroll
  for (int v = 0; v < vectors; ++v) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float value = values[(4 * v + e) * kStride];
      const uint32_t place = scale.place<kPlaces>(value);
      bool selected = place > found.digit;
      if (place == found.digit) selected = value >= kLowest && short_rank(value, 4 * (v * kThreads + thread) + e - skip) >= least;
      selects |= uint32_t(selected) << (4 * v + e);
      mine += uint32_t(selected) << (8 * v);
    }
  }
  const uint32_t sum = sum_through(mine, lane);  // a warp's sum over a vector is at most 128
  if (lane == 31) shared.selected_counts[warp] = sum;
  __syncthreads();
  // Every warp adds up the counts of all (vector, warp), which are in the order of positions.
  constexpr int kEach = kWarps * kVectors / 32;
  const uint32_t* counts = shared.selected_counts + lane * kEach % kWarps;
  const int byte = lane * kEach / kWarps * 8;
  uint32_t here[kEach], before = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) before += here[i] = counts[i] >> byte & 255;
  const uint32_t all = before;
  before = sum_through(before, lane);
  const uint32_t total = __shfl_sync(kWarp, before, 31);
  before -= all;
  const bool staged = p.k <= kStaged;
#pragma unroll kUnroll
  for (int v = 0; v < vectors; ++v) {
    const int index = v * kWarps + warp;
    uint32_t to = __shfl_sync(kWarp, before, index / kEach);
#pragma unroll
    for (int i = 0; i + 1 < kEach; ++i) {
      const uint32_t count = __shfl_sync(kWarp, here[i], index / kEach);
      if (i < index % kEach) to += count;
    }
    to += (sum >> 8 * v & 255) - (mine >> 8 * v & 255);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (!(selects >> (4 * v + e) & 1)) continue;
      const int position = 4 * (v * kThreads + thread) + e - skip + offset;
      if (staged)
        shared.selected[to] = position;
      else
        write(p, row, to, position);
      ++to;
    }
  }
  if (staged) __syncthreads();
  for (uint32_t i = thread; i < p.k; i += kThreads) {
    if (i >= total)
      write_none(p, row, i);
    else if (staged)
      write(p, row, i, shared.selected[i]);
  }
}

// One CTA for each row of at most 4 * kThreads * kVectors columns, counted from the 16 bytes that the row starts in. kCtas run on a
// multiprocessor.
template <int kThreads, int kVectors, int kCtas>
__global__ void __launch_bounds__(kThreads, kCtas) select_short_kernel(const __grid_constant__ Problem p) {
  common::pdl_launch_dependents();
  __shared__ ShortShared<kThreads> shared;
  const int row = blockIdx.x, start = p.starts == nullptr ? 0 : p.starts[row], end = p.ends[row], first = max(start, 0);
  common::pdl_wait();
  const int length = max(0, min(end, p.columns) - first);
  const float* logits = p.logits + row * p.row_stride;
  float values[4 * kVectors];
  select_short<kThreads, kVectors, false>(shared, values, p, logits, p.columns, first, length, -start, row);
}

}  // namespace topk
