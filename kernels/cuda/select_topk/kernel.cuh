// Exact top-k of fp32 rows that are too long for short_rows.cuh. Of equal values the lowest position is selected first. A cluster of CTAs
// works on one row.
//
// Nearly always one pass over the row suffices. A sample of the row gives a threshold that somewhat more than k values reach. These become
// candidates in shared memory, where a radix select finds the k best. If the sample was misleading (fewer than k values reach the
// threshold, or more than fit into shared memory), a radix select over the row itself is used instead, digit by digit. Many equal values
// around the threshold, such as the zeros that ReLU produces, show in the sample. Then the values above them are collected, and the first
// of the equal values, by position, fill the rest.
//
// One integer, `rank`, orders pairs (value, position), so that ties need no separate treatment. The selected positions are kept as a
// bitmap: the bits do not depend on the order of threads, and positions are written in ascending order.
#pragma once

#include <cooperative_groups.h>

#include "short_rows.cuh"

namespace topk {

namespace cg = cooperative_groups;

constexpr int kThreads = 512;

struct Threshold {
  float least;  // candidates are >= this
  bool level;   // too many values equal `below`, the next value under `least`, for them to be candidates
  float below;
};

// Loads samples from number `first` on; -inf past the last. There is one sample in each of 1 << log_samples equal stretches of the row. Its
// offset changes from stretch to stretch, so that periodic rows are sampled well.
template <int kSamples>
__device__ __forceinline__ void load_samples(float (&values)[kSamples], const float* row, int length, int log_samples, int first) {
  const uint32_t stretch = uint32_t(length) >> log_samples;
#pragma unroll
  for (int i = 0; i < kSamples; ++i) {
    const uint32_t sample = first + i * kThreads + threadIdx.x;
    const uint32_t from = uint64_t(sample) * length >> log_samples, within = ((sample * 2654435761u >> 16) * stretch) >> 16;
    values[i] = sample >> log_samples ? -INFINITY : __ldg(row + from + within);
  }
}

// Returns a threshold that about `target` samples reach; kLowest if there are fewer samples. `values` are the first samples.
template <int kSamples>
__device__ __forceinline__ Threshold sampled_threshold(Shared& shared, float (&values)[kSamples], const float* row, int length,
                                                       int log_samples, uint32_t target, int capacity) {
  uint32_t* keys = reinterpret_cast<uint32_t*>(shared.entries);  // candidates come later
  const int samples = 1 << log_samples;
  for (int first = 0; first < samples; first += kSamples * kThreads) {
    if (first) load_samples(values, row, length, log_samples, first);
#pragma unroll
    for (int i = 0; i < kSamples; ++i) {
      const int sample = first + i * kThreads + threadIdx.x;
      const uint32_t key = values[i] >= kLowest ? key_of(values[i]) : 0;
      if (sample < samples) keys[sample] = key;
      if (key) atomicAdd(&shared.histogram[key >> 21], 1);
    }
  }
  __syncthreads();
  const Found high = find_digit<kThreads>(shared, target);
  if (high.total < target) return {kLowest, false, 0};
  // A threshold is good enough if the values that reach it will fit, with a margin of four standard deviations.
  const auto fits = [&](uint32_t reached) {
    return (float(reached) + 4.0f * float(reached) * rsqrtf(float(reached))) * float((length >> log_samples) + 1) <= float(capacity);
  };
  if (fits(high.above + high.count)) return {value_of(max(high.digit << 21, key_of(kLowest))), false, 0};
  clear_histogram<kThreads>(shared);
  __syncthreads();
  for (int i = threadIdx.x; i < samples; i += kThreads)
    if (keys[i] >> 21 == high.digit) atomicAdd(&shared.histogram[(keys[i] >> 10) % kDigits], 1);
  __syncthreads();
  const Found middle = find_digit<kThreads>(shared, target - high.above);
  const uint32_t prefix = high.digit << 11 | middle.digit;
  if (fits(high.above + middle.above + middle.count)) return {value_of(max(prefix << 10, key_of(kLowest))), false, 0};
  clear_histogram<kThreads>(shared);
  __syncthreads();
  for (int i = threadIdx.x; i < samples; i += kThreads)
    if (keys[i] >> 10 == prefix) atomicAdd(&shared.histogram[keys[i] % 1024], 1);
  __syncthreads();
  const Found low = find_digit<kThreads>(shared, target - high.above - middle.above);
  const uint32_t key = prefix << 10 | low.digit;
  return {value_of(key + 1), true, value_of(key)};
}

// The `count` elements from `from` on, one CTA's part of a row, as aligned vectors; elements outside are -inf.
struct Slice {
  const float* aligned;  // at or below the first element
  int skip, count;       // skip: elements between `aligned` and the first

  __device__ __forceinline__ Slice(const float* from, int count) : count(count) {
    skip = static_cast<int>(reinterpret_cast<uintptr_t>(from) / sizeof(float) % 4);
    aligned = from - skip;
  }
  __device__ __forceinline__ float4 load(int vector) const {
    const int first = vector * 4 - skip;
    if (first >= 0 && first + 4 <= count) return __ldg(reinterpret_cast<const float4*>(aligned) + vector);
    float4 value = make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
    if (first + 4 <= 0 || first >= count) return value;
    if (first >= 0) value.x = __ldg(aligned + skip + first);
    if (first + 1 >= 0 && first + 1 < count) value.y = __ldg(aligned + skip + first + 1);
    if (first + 2 >= 0 && first + 2 < count) value.z = __ldg(aligned + skip + first + 2);
    if (first + 3 < count) value.w = __ldg(aligned + skip + first + 3);
    return value;
  }
  __device__ __forceinline__ int vectors() const { return (skip + count + 3) / 4; }
};

template <int kVectors>
__device__ __forceinline__ void load_tile(float4 (&tile)[kVectors], const Slice& slice, int tile_index) {
  const int first = tile_index * kVectors * kThreads;
  if (first * 4 >= slice.skip && (first + kVectors * kThreads) * 4 <= slice.skip + slice.count) {
    const float4* from = reinterpret_cast<const float4*>(slice.aligned) + first + threadIdx.x;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) tile[v] = __ldg(from + v * kThreads);
  } else {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) tile[v] = slice.load(first + v * kThreads + threadIdx.x);
  }
}

// Appends the values that reach the threshold to this CTA's candidates. `position` is that of the slice's vector 0.
template <int kVectors>
__device__ __forceinline__ void append(Shared& shared, const float4 (&tile)[kVectors], float threshold, int position, int tile_index,
                                       int capacity) {
  uint32_t passes = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    passes |= uint32_t(tile[v].x >= threshold) << (4 * v);
    passes |= uint32_t(tile[v].y >= threshold) << (4 * v + 1);
    passes |= uint32_t(tile[v].z >= threshold) << (4 * v + 2);
    passes |= uint32_t(tile[v].w >= threshold) << (4 * v + 3);
  }
  if (!__any_sync(kWarp, passes)) return;
  const int lane = threadIdx.x % 32;
  const uint32_t mine = __popc(passes);
  const uint32_t sum = sum_through(mine, lane);
  uint32_t base = 0;
  if (lane == 31) base = atomicAdd(&shared.candidates, sum);
  base = __shfl_sync(kWarp, base, 31);
  if (base + __shfl_sync(kWarp, sum, 31) > capacity) return;  // counted all the same: the leader sees that they did not fit
  uint2* to = shared.entries + base + sum - mine;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const float values[4] = {tile[v].x, tile[v].y, tile[v].z, tile[v].w};
    const int first = position + 4 * ((tile_index * kVectors + v) * kThreads + static_cast<int>(threadIdx.x));
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (passes >> (4 * v + e) & 1) *to++ = make_uint2(__float_as_uint(values[e]), first + e);
  }
}

// The candidates of all CTAs, in the leader's shared memory.
struct Candidates {
  const uint2* entries;
  uint32_t own, total, gap;  // gap: entries between the leader's own candidates and the others'

  __device__ __forceinline__ uint2 operator[](uint32_t i) const { return entries[i < own ? i : i + gap]; }
};

// Turns the values of this CTA's candidates into keys, and updates the leader's highest key.
__device__ __forceinline__ void make_keys(Shared& shared, uint32_t count, uint32_t* leader_highest) {
  uint32_t highest = 0;
  for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
    const uint32_t key = key_of(__uint_as_float(shared.entries[i].x));
    shared.entries[i].x = key;
    highest = max(highest, key);
  }
  highest = __reduce_max_sync(kWarp, highest);
  if (threadIdx.x % 32 == 0 && highest) atomicMax(leader_highest, highest);
}

__device__ __forceinline__ void set_bit(uint32_t* bitmap, uint32_t position) { atomicOr(&bitmap[position / 32], 1u << position % 32); }

// Returns the smallest of the k best ranks of the candidates, found digit by digit. There are more than k candidates.
__device__ __noinline__ uint64_t last_rank(Shared& shared, const Candidates& candidates, uint32_t k) {
  uint64_t prefix = 0;
  for (int shift = kFirstShift;; shift -= kDigitBits) {
    clear_histogram<kThreads>(shared);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < candidates.total; i += kThreads) {
      const uint64_t rank = rank_of(candidates[i]);
      if (rank >> (shift + kDigitBits) == prefix) atomicAdd(&shared.histogram[uint32_t(rank >> shift) % kDigits], 1);
    }
    __syncthreads();
    const Found found = find_digit<kThreads>(shared, k);
    prefix = prefix << kDigitBits | found.digit;
    k -= found.above;
    if (found.count == k) return prefix << shift;  // at the last digit at the latest, since all ranks differ
  }
}

// Marks the k best candidates in the bitmap. All candidates have keys >= lowest. A histogram of (key - lowest) decides for most; the few
// candidates that share the digit of the last selected one are compared with each other.
__device__ __forceinline__ void mark_best(Shared& shared, const Candidates& candidates, uint32_t k, uint32_t lowest, uint32_t* bitmap) {
  const int shift = max(0, 32 - kDigitBits - __clz(shared.highest - lowest));
  for (uint32_t i = threadIdx.x; i < candidates.total; i += kThreads)
    atomicAdd(&shared.histogram[(candidates[i].x - lowest) >> shift], 1);
  __syncthreads();
  const Found found = find_digit<kThreads>(shared, k);
  const uint32_t needed = k - found.above;
  if (found.count != needed && found.count > kFew) {
    const uint64_t least = last_rank(shared, candidates, k);
    for (uint32_t i = threadIdx.x; i < candidates.total; i += kThreads)
      if (rank_of(candidates[i]) >= least) set_bit(bitmap, candidates[i].y);
    return;
  }
  const uint32_t enough = found.digit + (found.count != needed);
  for (uint32_t i = threadIdx.x; i < candidates.total; i += kThreads) {
    const uint2 entry = candidates[i];
    const uint32_t digit = (entry.x - lowest) >> shift;
    if (digit >= enough)
      set_bit(bitmap, entry.y);
    else if (digit == found.digit)
      shared.few[atomicAdd(&shared.few_count, 1)] = rank_of(entry);
  }
  if (found.count == needed) return;
  __syncthreads();
  if (threadIdx.x >= found.count) return;
  const uint64_t mine = shared.few[threadIdx.x];
  uint32_t above = 0;
  for (uint32_t i = 0; i < found.count; ++i) above += shared.few[i] > mine;
  if (above < needed) set_bit(bitmap, position_of(mine));
}

// Calls visit(value, position) for the positions of a part; the value is -inf past its end. The 32 lanes of a warp visit the positions of
// one word of the bitmap together.
template <class Visit>
__device__ __forceinline__ void visit_row(const float* row, int from, int to, Visit visit) {
  constexpr int kAtOnce = 8;
  for (int first = from + static_cast<int>(threadIdx.x); first - static_cast<int>(threadIdx.x % 32) < to; first += kAtOnce * kThreads) {
    float values[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) values[i] = first + i * kThreads < to ? __ldg(row + first + i * kThreads) : -INFINITY;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) visit(values[i], first + i * kThreads);
  }
}

// Marks the positions that `selects` accepts in the leader's bitmap.
template <class Predicate>
__device__ __forceinline__ void mark(const float* row, int from, int to, uint32_t* leader_bitmap, Predicate selects) {
  visit_row(row, from, to, [&](float value, int position) {
    const uint32_t word = __ballot_sync(kWarp, selects(value, position));
    if (threadIdx.x % 32 == 0 && position < to) leader_bitmap[position / 32] = word;
  });
}

// Radix select over the row itself. Every CTA reads its own part up to six times. The bitmap ends up in the leader.
__device__ __noinline__ void select_over_row(Shared& shared, const float* row, int from, int to, uint32_t needed, uint32_t* bitmap) {
  const cg::cluster_group cluster = cg::this_cluster();
  Shared& leader = *cluster.map_shared_rank(&shared, 0);
  uint64_t prefix = 0, threshold = 0;
  for (int shift = kFirstShift; shift >= 0; shift -= kDigitBits) {
    clear_histogram<kThreads>(shared);
    cluster_sync();
    visit_row(row, from, to, [&](float value, int position) {
      const uint64_t rank = rank_of(value, position);
      if (value >= kLowest && rank >> (shift + kDigitBits) == prefix)
        atomicAdd(&shared.histogram[uint32_t(rank >> shift) % kDigits], 1);
    });
    __syncthreads();
    if (cluster.block_rank()) {
#pragma unroll
      for (int i = 0; i < kDigits / kThreads; ++i) {
        const int digit = i * kThreads + threadIdx.x;
        if (shared.histogram[digit]) atomicAdd(&leader.histogram[digit], shared.histogram[digit]);
      }
    }
    cluster_sync();
    if (cluster.block_rank() == 0) find_digit<kThreads>(shared, needed);
    cluster_sync();
    const Found found = leader.found;
    if (found.total < needed) break;  // only in the first round: the row has fewer candidates than needed, so all are selected
    prefix = prefix << kDigitBits | found.digit;
    threshold = prefix << shift;
    needed -= found.above;
    if (found.count == needed) break;
  }
  mark(row, from, to, cluster.map_shared_rank(bitmap, 0),
                 [&](float value, int position) { return value >= kLowest && rank_of(value, position) >= threshold; });
  cluster_sync();
}

// Clears all bits of a bitmap but the first `keep`; returns how many bits were set.
__device__ __forceinline__ uint32_t keep_first(Shared& shared, uint32_t* bitmap, int words, uint32_t keep) {
  uint32_t before = 0;
  for (int first = 0, turn = 0; first < words; first += kThreads, turn ^= 1) {
    const int index = first + threadIdx.x;
    uint32_t word = index < words ? bitmap[index] : 0;
    const Scan scan = block_scan<kThreads>(__popc(word), shared.warp_sums[turn]);
    while (word && before + scan.before + __popc(word) > keep) word &= ~(0x80000000u >> __clz(word));
    if (index < words) bitmap[index] = word;
    before += scan.total;
  }
  __syncthreads();
  return before;
}

// Used when fewer than k values lie above the level. Makes the bitmap of the first `missing` positions whose value equals `level`; returns
// whether there are that many.
__device__ __noinline__ bool select_level(Shared& shared, const float* row, int from, int to, int length, float level, uint32_t missing,
                                          uint32_t* bitmap) {
  const cg::cluster_group cluster = cg::this_cluster();
  mark(row, from, to, cluster.map_shared_rank(bitmap, 0), [&](float value, int) { return value == level; });
  cluster_sync();
  if (cluster.block_rank() == 0) {
    const uint32_t count = keep_first(shared, bitmap, (length + 31) / 32, missing);
    if (threadIdx.x == 0) shared.lacking = count < missing;
  }
  cluster_sync();
  return !cluster.map_shared_rank(&shared, 0)->lacking;
}

// Writes the positions, plus `offset`, of the candidates that the bitmap holds, in ascending order: the bits before a candidate's own give
// its index in the output. Returns how many there are.
__device__ __forceinline__ uint32_t write_candidates(Shared& shared, const Problem& p, const Candidates& candidates, const uint32_t* bitmap,
                                                     int length, int offset, int row) {
  const uint64_t* groups = reinterpret_cast<const uint64_t*>(bitmap);
  uint16_t* before = reinterpret_cast<uint16_t*>(shared.histogram);  // bits set before each group
  const int count = (length + 63) / 64, mine = (count + kThreads - 1) / kThreads, first = threadIdx.x * mine;
  uint32_t sum = 0;
  for (int i = first; i < min(first + mine, count); ++i) sum += __popcll(groups[i]);
  const Scan scan = block_scan<kThreads>(sum, shared.warp_sums[0]);
  sum = scan.before;
  for (int i = first; i < min(first + mine, count); ++i) {
    before[i] = static_cast<uint16_t>(sum);
    sum += __popcll(groups[i]);
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < candidates.total; i += kThreads) {
    const uint32_t position = candidates[i].y;
    const uint64_t group = groups[position / 64], bit = uint64_t(1) << position % 64;
    if (!(group & bit)) continue;
    const uint32_t to = before[position / 64] + __popcll(group & (bit - 1));
    if (p.k <= kStaged)  // staged, so that whole lines are written at once: scattered words cost 40 us for 4096 rows of 32K
      shared.selected[to] = int(position) + offset;
    else
      write(p, row, to, int(position) + offset);
  }
  if (p.k <= kStaged) {
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < scan.total; i += kThreads) write(p, row, i, shared.selected[i]);
  }
  return scan.total;
}

// The same for all positions in the bitmap. Neighbouring threads take neighbouring words, so that a run of set bits is spread over threads.
__device__ __noinline__ uint32_t write_bitmap(Shared& shared, const Problem& p, const uint32_t* bitmap, int length, int offset, int row) {
  uint32_t written = 0;
  for (int first = 0, turn = 0; first < length; first += 32 * kThreads, turn ^= 1) {
    const int base = first + 32 * threadIdx.x;
    uint32_t word = base < length ? bitmap[base / 32] : 0;
    const Scan scan = block_scan<kThreads>(__popc(word), shared.warp_sums[turn]);
    for (uint32_t to = written + scan.before; word; word &= word - 1, ++to) write(p, row, to, base + __ffs(word) - 1 + offset);
    written += scan.total;
  }
  return written;
}

// kCtas run on a multiprocessor. Each thread has 2 * kVectors 16-byte loads in flight. All loads in flight go through the L1 cache, of
// which more CTAs would leave too little: 4096 rows of 32K take 379 us with three CTAs of 71 KB and 276 us with two.
template <int kCtas, int kVectors>
__global__ void __launch_bounds__(kThreads, kCtas) select_topk_kernel(const __grid_constant__ Problem p) {
  common::pdl_launch_dependents();
  extern __shared__ __align__(16) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  uint32_t* bitmap = reinterpret_cast<uint32_t*>(shared.entries + p.capacity);
  const cg::cluster_group cluster = cg::this_cluster();
  const int parts = cluster.num_blocks(), part = cluster.block_rank();
  const int row = blockIdx.x / parts;
  const int start = p.starts == nullptr ? 0 : p.starts[row], first = max(start, 0), length = min(p.ends[row], p.columns) - first;
  common::pdl_wait();
  const float* logits = p.logits + row * p.row_stride + first;
  // One CTA can hold a row that is much shorter than the buffer. In the model: a sequence that is short next to the longest one.
  if (length + int(reinterpret_cast<uintptr_t>(logits) / sizeof(float) % 4) <= 16 * kThreads) {
    ShortShared<kThreads>& own = *reinterpret_cast<ShortShared<kThreads>*>(memory);
    float* values = reinterpret_cast<float*>(&own + 1) + threadIdx.x;
    if (part == 0) select_short<kThreads, 4, true>(own, values, p, logits, length, 0, max(0, length), first - start, row);
    return;
  }
  // Parts end at words of the bitmap.
  const int share = (length + parts * 32 - 1) / (parts * 32) * 32, from = min(part * share, length), to = min(from + share, length);
  const Slice slice(logits + from, to - from);

  // Loads are in flight while shared memory is cleared; the tile's loads also while the threshold is computed.
  const bool sampled = length > p.capacity;
  const int log_samples = min(max(10, 32 - __clz((length - 1) >> kLogStretch)), 13);
  float samples[4];
  if (sampled) load_samples(samples, logits, length, log_samples, 0);
  float4 tile[kVectors];
  load_tile(tile, slice, 0);
  clear_histogram<kThreads>(shared);
  if (threadIdx.x == 0) shared.candidates = shared.received = shared.highest = shared.few_count = 0;
  if (part == 0)
    for (int i = threadIdx.x; i < (length + 63) / 64 * 2; i += kThreads) bitmap[i] = 0;
  __syncthreads();

  Threshold threshold = {kLowest, false, 0};
  if (sampled) {
    // About k * samples / length of the k best values are in the sample, with the square root of that as standard deviation. Four standard
    // deviations are added for safety.
    const float expected = __fdividef(float(p.k) * float(1 << log_samples), float(length));
    const uint32_t target = uint32_t(expected + 4.0f * expected * rsqrtf(expected)) + 2;
    threshold = sampled_threshold(shared, samples, logits, length, log_samples, target, p.capacity);
    __syncthreads();  // candidates overwrite the keys of the sample
  }
  if (parts > 1) cluster_arrive(part == 0 && threadIdx.x < 32);  // from here on other CTAs may write to the leader

  const int tiles = (slice.vectors() + kVectors * kThreads - 1) / (kVectors * kThreads);
  for (int i = 0; i < tiles; ++i) {
    float4 next[kVectors];
    if (i + 1 < tiles) load_tile(next, slice, i + 1);
    append(shared, tile, threshold.least, from - slice.skip, i, p.capacity);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) tile[v] = next[v];
  }
  __syncthreads();

  const uint32_t own = shared.candidates;
  Shared& leader = *cluster.map_shared_rank(&shared, 0);
  if (parts > 1) cluster_wait();
  if (part && threadIdx.x == 0) shared.base = atomicAdd(&leader.received, own);
  clear_histogram<kThreads>(shared);
  make_keys(shared, min(own, p.capacity), &leader.highest);
  __syncthreads();
  uint32_t total = own;
  if (parts > 1) {
    if (part && shared.base + own <= p.capacity) {
      uint2* to = leader.entries + (p.capacity - shared.base - own);
      for (uint32_t i = threadIdx.x; i < own; i += kThreads) to[i] = shared.entries[i];
    }
    cluster_sync();
    total = leader.candidates + leader.received;
  }

  const uint32_t k = p.k;
  const bool fit = total <= p.capacity, fast = fit && (total >= k || threshold.least == kLowest);
  const bool level = !fast && fit && threshold.level &&
                     select_level(shared, logits, from, to, length, threshold.below, k - total, bitmap);
  if (!fast && !level) select_over_row(shared, logits, from, to, k, bitmap);
  if (part) return;
  const Candidates candidates = {shared.entries, own, total, p.capacity - total};
  if (fast && total > k) {
    mark_best(shared, candidates, k, key_of(threshold.least), bitmap);
    __syncthreads();
  } else if (fast || level) {
    for (uint32_t i = threadIdx.x; i < total; i += kThreads) set_bit(bitmap, candidates[i].y);
    __syncthreads();
  }
  const bool direct = fast && length <= kMostGroups * 64 && k < 65536;
  const uint32_t written = direct ? write_candidates(shared, p, candidates, bitmap, length, first - start, row)
                                  : write_bitmap(shared, p, bitmap, length, first - start, row);
  for (uint32_t i = written + threadIdx.x; i < k; i += kThreads) write_none(p, row, i);
  if (parts > 1) {  // the leader's shared memory must exist until the other CTAs have read it
    cluster_arrive(false);
    cluster_wait();
  }
}

}  // namespace topk
