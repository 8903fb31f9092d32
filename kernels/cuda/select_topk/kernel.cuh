// Exact top-k of fp32 rows with the lowest position first among equals, by a cluster of CTAs a row.
//
// One pass over the row where luck allows, which is nearly always: a sample of the row gives a threshold that somewhat more than k
// values pass; those become candidates in shared memory, and a radix select there finds the k best. If the sample misled (fewer than k
// passed, or more than there is room for) a radix select over the row itself, digit by digit, takes its place. Many equal values about
// the threshold, such as the zeros that ReLU leaves, show in the sample; then what is above them is collected, and the first of them,
// by position, fill up.
//
// An order is put on pairs (value, position) by one integer, `rank`, so that ties need no treatment of their own. Which positions are
// chosen is kept as a bitmap: whatever order threads arrive in, the bits are the same, and they come out in ascending order.
#pragma once

#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace topk {

namespace cg = cooperative_groups;

constexpr int kDigitBits = 11;
constexpr int kDigits = 1 << kDigitBits;
constexpr int kPositionBits = 23;                // 32 of the value and 23 of the position are five digits
constexpr int kFirstShift = 4 * kDigitBits;      // of the highest digit
constexpr int kVectors = 4;                      // 16-byte loads that a thread has under way at a time
constexpr float kLowest = -3.402823466e38f;      // >= this: neither NaN nor -inf
constexpr unsigned kWarp = 0xffffffffu;

struct Problem {
  const float* logits;
  int64_t row_stride;
  const int32_t* starts;
  const int32_t* ends;
  const int32_t* block_table;  // or null: write positions
  int64_t table_stride;
  int32_t* out;                // [rows, k]
  int columns, k;
  int page_size, page_shift;   // shift: log2 of the size, or -1 if there is none
  int capacity;                // of candidates
};

struct Found {
  uint32_t digit;  // of the needed-th best
  uint32_t above;  // entries of higher digits
  uint32_t count;  // entries of this digit
  uint32_t total;
};

struct Shared {
  uint32_t histogram[kDigits];
  uint32_t warp_sums[2][32];
  Found found;
  uint32_t candidates;  // in the leader: of the whole cluster
  uint32_t highest;     // key among the candidates
  uint32_t base;
  uint32_t lacking;     // the level and what is above it are fewer than k
  alignas(16) uint2 entries[];  // [capacity] of a value's bits and its position, then the bitmap
};

inline size_t shared_bytes(int capacity, int columns) {
  return sizeof(Shared) + size_t(capacity) * 8 + (size_t(columns) + 31) / 32 * 4;
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
__device__ __forceinline__ uint64_t rank_of(uint2 entry) { return rank_of(__uint_as_float(entry.x), static_cast<int>(entry.y)); }

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

// Sums of the threads before this one, and of all. One barrier: successive calls must alternate between two buffers.
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
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t other = __shfl_up_sync(kWarp, warps, step);
    if (lane >= step) warps += other;
  }
  const uint32_t earlier = __shfl_sync(kWarp, warps, (warp + 31) % 32);
  return {sum - value + (warp ? earlier : 0), __shfl_sync(kWarp, warps, 31)};
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
  alignas(16) uint32_t counts[kMine];
  using Vector = std::conditional_t<kMine == 4, uint4, uint2>;
  static_assert(sizeof(Vector) == sizeof(counts));
  *reinterpret_cast<Vector*>(counts) = *reinterpret_cast<const Vector*>(shared.histogram + first);
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

struct Threshold {
  float least;  // candidates are >= this
  bool level;   // so many values equal `below`, next to `least`, that they are no candidates
  float below;
};

// A threshold that about `target` of 1 << log_samples samples reach; kLowest if there are not so many. The samples are spread over the
// row: one from each of as many equal stretches, at a place within it that changes from stretch to stretch, against periodic rows.
template <int kThreads>
__device__ __forceinline__ Threshold sampled_threshold(Shared& shared, const float* row, int length, int log_samples, uint32_t target,
                                                       int capacity) {
  uint32_t* keys = reinterpret_cast<uint32_t*>(shared.entries);  // candidates come later
  const int samples = 1 << log_samples;
  const uint32_t stretch = uint32_t(length) >> log_samples;
  for (int base = threadIdx.x; base < samples; base += 4 * kThreads) {
    float value[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t sample = base + i * kThreads;
      const uint32_t from = uint64_t(sample) * length >> log_samples, within = ((sample * 2654435761u >> 16) * stretch) >> 16;
      value[i] = sample < samples ? __ldg(row + from + within) : -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t key = value[i] >= kLowest ? key_of(value[i]) : 0;
      if (base + i * kThreads < samples) keys[base + i * kThreads] = key;
      if (key) atomicAdd(&shared.histogram[key >> 21], 1);
    }
  }
  __syncthreads();
  const Found high = find_digit<kThreads>(shared, target);
  if (high.total < target) return {kLowest, false, 0};
  clear_histogram<kThreads>(shared);
  __syncthreads();
  for (int i = threadIdx.x; i < samples; i += kThreads)
    if (keys[i] >> 21 == high.digit) atomicAdd(&shared.histogram[(keys[i] >> 10) % kDigits], 1);
  __syncthreads();
  const Found middle = find_digit<kThreads>(shared, target - high.above);
  const uint32_t prefix = high.digit << 11 | middle.digit, reached = high.above + middle.above + middle.count;
  if ((uint64_t(reached) * length >> log_samples) <= capacity) return {value_of(max(prefix << 10, key_of(kLowest))), false, 0};
  clear_histogram<kThreads>(shared);
  __syncthreads();
  for (int i = threadIdx.x; i < samples; i += kThreads)
    if (keys[i] >> 10 == prefix) atomicAdd(&shared.histogram[keys[i] % 1024], 1);
  __syncthreads();
  const Found low = find_digit<kThreads>(shared, target - high.above - middle.above);
  const uint32_t key = prefix << 10 | low.digit;
  return {value_of(key + 1), true, value_of(key)};
}

// Elements of one CTA's part of a row, `count` from `from` on, sixteen a thread at a time, as aligned vectors; outside: -inf.
struct Slice {
  const float* aligned;  // at or below the first element
  int skip, count;       // elements from `aligned` to the first; elements

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

template <int kThreads>
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

// Appends what reaches the threshold to this CTA's candidates. `position` is that of the slice's vector 0.
template <int kThreads>
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
  uint32_t sum = mine;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t other = __shfl_up_sync(kWarp, sum, step);
    if (lane >= step) sum += other;
  }
  uint32_t base = 0;
  if (lane == 31) base = atomicAdd(&shared.candidates, sum);
  base = __shfl_sync(kWarp, base, 31);
  if (base + __shfl_sync(kWarp, sum, 31) > capacity) return;  // counted, though: the leader sees that they did not fit
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

// The smallest of the k best ranks among the leader's candidates, of which there are more than k, all with keys >= lowest.
template <int kThreads>
__device__ __forceinline__ uint64_t candidate_threshold(Shared& shared, uint32_t count, uint32_t k, uint32_t lowest) {
  uint32_t highest = 0;
  for (uint32_t i = threadIdx.x; i < count; i += kThreads) highest = max(highest, key_of(__uint_as_float(shared.entries[i].x)));
  highest = __reduce_max_sync(kWarp, highest);
  if (threadIdx.x % 32 == 0) atomicMax(&shared.highest, highest);
  __syncthreads();
  // Digits are taken from ranks above the lowest possible one: all eleven bits of the first then tell candidates apart.
  const uint64_t offset = uint64_t(lowest) << kPositionBits;
  int bits = kPositionBits + 32 - __clz(shared.highest - lowest);
  uint64_t prefix = 0;
  while (true) {
    const int width = min(bits, kDigitBits), shift = bits - width;
    clear_histogram<kThreads>(shared);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
      const uint64_t rank = rank_of(shared.entries[i]) - offset;
      if (rank >> bits == prefix) atomicAdd(&shared.histogram[uint32_t(rank >> shift) & ((1u << width) - 1)], 1);
    }
    __syncthreads();
    const Found found = find_digit<kThreads>(shared, k);
    prefix = prefix << width | found.digit;
    k -= found.above;
    bits = shift;
    if (found.count == k || bits == 0) return (prefix << shift) + offset;
  }
}

// Calls visit(value, position) for the positions of a part, warps together for 32 that share a word of the bitmap; beyond: -inf.
template <int kThreads, class Visit>
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

// Marks what `chosen` accepts in the leader's bitmap.
template <int kThreads, class Chosen>
__device__ __forceinline__ void mark(const float* row, int from, int to, uint32_t* leader_bitmap, Chosen chosen) {
  visit_row<kThreads>(row, from, to, [&](float value, int position) {
    const uint32_t word = __ballot_sync(kWarp, chosen(value, position));
    if (threadIdx.x % 32 == 0 && position < to) leader_bitmap[position / 32] = word;
  });
}

// Radix select over the row itself; every CTA reads its own part up to six times. Leaves the bitmap in the leader.
template <int kThreads>
__device__ __noinline__ void select_over_row(Shared& shared, const float* row, int from, int to, uint32_t needed, uint32_t* bitmap) {
  const cg::cluster_group cluster = cg::this_cluster();
  Shared& leader = *cluster.map_shared_rank(&shared, 0);
  uint64_t prefix = 0, threshold = 0;
  for (int shift = kFirstShift; shift >= 0; shift -= kDigitBits) {
    clear_histogram<kThreads>(shared);
    cluster_sync();
    visit_row<kThreads>(row, from, to, [&](float value, int position) {
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
    if (found.total < needed) break;  // only in the first round: all that there is
    prefix = prefix << kDigitBits | found.digit;
    threshold = prefix << shift;
    needed -= found.above;
    if (found.count == needed) break;
  }
  mark<kThreads>(row, from, to, cluster.map_shared_rank(bitmap, 0),
                 [&](float value, int position) { return value >= kLowest && rank_of(value, position) >= threshold; });
  cluster_sync();
}

// Leaves the first `keep` bits of a bitmap; how many there were.
template <int kThreads>
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

// With `above` candidates, fewer than k, and the level below them: the bitmap of the level's first positions. Whether they suffice.
template <int kThreads>
__device__ __noinline__ bool select_level(Shared& shared, const float* row, int from, int to, int length, float level, uint32_t missing,
                                          uint32_t* bitmap) {
  const cg::cluster_group cluster = cg::this_cluster();
  mark<kThreads>(row, from, to, cluster.map_shared_rank(bitmap, 0), [&](float value, int) { return value == level; });
  cluster_sync();
  if (cluster.block_rank() == 0) {
    const uint32_t count = keep_first<kThreads>(shared, bitmap, (length + 31) / 32, missing);
    if (threadIdx.x == 0) shared.lacking = count < missing;
  }
  cluster_sync();
  return !cluster.map_shared_rank(&shared, 0)->lacking;
}

// The bitmap's positions, ascending, then -1.
template <int kThreads>
__device__ __forceinline__ void write_chosen(Shared& shared, const Problem& p, const uint32_t* bitmap, int length, int offset, int row) {
  int32_t* out = p.out + int64_t(row) * p.k;
  const int32_t* pages = p.block_table ? p.block_table + row * p.table_stride : nullptr;
  const int words = (length + 31) / 32;
  uint32_t written = 0;
  for (int first = 0, turn = 0; first < words; first += kThreads, turn ^= 1) {
    const int index = first + threadIdx.x;
    uint32_t word = index < words ? bitmap[index] : 0;
    const Scan scan = block_scan<kThreads>(__popc(word), shared.warp_sums[turn]);
    for (uint32_t to = written + scan.before; word; word &= word - 1, ++to) {
      const int position = index * 32 + __ffs(word) - 1 + offset;
      if (!pages)
        out[to] = position;
      else if (p.page_shift >= 0)
        out[to] = (pages[position >> p.page_shift] << p.page_shift) + (position & (p.page_size - 1));
      else
        out[to] = pages[position / p.page_size] * p.page_size + position % p.page_size;
    }
    written += scan.total;
  }
  for (int to = written + threadIdx.x; to < p.k; to += kThreads) out[to] = -1;
}

template <int kThreads, int kCtas>
__global__ void __launch_bounds__(kThreads, kCtas) select_topk_kernel(const __grid_constant__ Problem p) {
  extern __shared__ __align__(16) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  uint32_t* bitmap = reinterpret_cast<uint32_t*>(shared.entries + p.capacity);
  const cg::cluster_group cluster = cg::this_cluster();
  const int parts = cluster.num_blocks(), part = cluster.block_rank();
  const int row = blockIdx.x / parts;
  const int start = p.starts[row], first = max(start, 0), length = min(p.ends[row], p.columns) - first;
  if (length <= 0) {
    for (int to = part * kThreads + threadIdx.x; to < p.k; to += parts * kThreads) p.out[int64_t(row) * p.k + to] = -1;
    return;
  }
  const float* logits = p.logits + row * p.row_stride + first;
  // Parts are whole words of the bitmap.
  const int share = (length + parts * 32 - 1) / (parts * 32) * 32, from = min(part * share, length), to = min(from + share, length);
  const Slice slice(logits + from, to - from);

  clear_histogram<kThreads>(shared);
  if (threadIdx.x == 0) shared.candidates = shared.highest = 0;
  if (part == 0)
    for (int i = threadIdx.x; i < (length + 31) / 32; i += kThreads) bitmap[i] = 0;
  float4 tile[kVectors];
  load_tile<kThreads>(tile, slice, 0);  // on its way while the threshold is found
  __syncthreads();

  Threshold threshold = {kLowest, false, 0};
  if (length > p.capacity) {
    // Of the row's k best, k * samples / length fall into the sample, give or take a root; four of them for safety.
    const int log_samples = length <= 65536 ? 11 : 12;
    const float expected = __fdividef(float(p.k) * float(1 << log_samples), float(length));
    const uint32_t target = uint32_t(expected + 4.0f * expected * rsqrtf(expected)) + 2;
    threshold = sampled_threshold<kThreads>(shared, logits, length, log_samples, target, p.capacity);
    __syncthreads();  // the sample's keys lie where candidates go
  }
  if (parts > 1) cluster_arrive(part == 0 && threadIdx.x < 32);  // from here on others may send the leader their candidates

  const int tiles = (slice.vectors() + kVectors * kThreads - 1) / (kVectors * kThreads);
  for (int i = 0; i < tiles; ++i) {
    if constexpr (kCtas == 1) {
      float4 next[kVectors];
      if (i + 1 < tiles) load_tile<kThreads>(next, slice, i + 1);
      append<kThreads>(shared, tile, threshold.least, from - slice.skip, i, p.capacity);
#pragma unroll
      for (int v = 0; v < kVectors; ++v) tile[v] = next[v];
    } else {  // other CTAs of the SM read meanwhile
      append<kThreads>(shared, tile, threshold.least, from - slice.skip, i, p.capacity);
      if (i + 1 < tiles) load_tile<kThreads>(tile, slice, i + 1);
    }
  }
  __syncthreads();

  uint32_t total = shared.candidates;
  if (parts > 1) {
    cluster_wait();
    if (part) {
      Shared& leader = *cluster.map_shared_rank(&shared, 0);
      if (threadIdx.x == 0) shared.base = atomicAdd(&leader.candidates, total);
      __syncthreads();
      const uint32_t base = shared.base;
      if (base + total <= p.capacity)
        for (uint32_t i = threadIdx.x; i < total; i += kThreads) leader.entries[base + i] = shared.entries[i];
    }
    cluster_sync();
    total = cluster.map_shared_rank(&shared, 0)->candidates;
  }

  const uint32_t k = p.k;
  bool candidates = total <= p.capacity && (total >= k || threshold.least == kLowest);
  if (!candidates && threshold.level && total < k)
    candidates = select_level<kThreads>(shared, logits, from, to, length, threshold.below, k - total, bitmap);
  if (!candidates) {
    select_over_row<kThreads>(shared, logits, from, to, k, bitmap);
  } else if (part == 0) {
    const uint64_t least = total > k ? candidate_threshold<kThreads>(shared, total, k, key_of(threshold.least)) : 0;
    for (uint32_t i = threadIdx.x; i < total; i += kThreads) {
      const uint2 entry = shared.entries[i];
      if (rank_of(entry) >= least) atomicOr(&bitmap[entry.y / 32], 1u << entry.y % 32);
    }
    __syncthreads();
  }
  if (part == 0) {
    write_chosen<kThreads>(shared, p, bitmap, length, first - start, row);
    if (parts > 1) {  // others have read this CTA's memory before it ends, whether they wait or are gone
      cluster_arrive(false);
      cluster_wait();
    }
  }
}

}  // namespace topk
