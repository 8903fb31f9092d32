// The selection among the candidates of a query: their exact scores, with the MMAs and sums of prefill.cuh, and the k best of them.
//
// A query is marked in `failed`, and its row of the result means nothing, if its sample was misleading (fewer than k keys reach the threshold,
// or the candidates are more than fit into shared memory) or if a candidate's score is not finite.
#pragma once

#include "candidates.cuh"
#include "sample.cuh"

namespace indexer {

constexpr int kFinishGroups = kFinishThreads / kWarpgroup;
constexpr int kPositionBits = 20;
constexpr uint64_t kNone = ~uint64_t(0);  // no rank

struct Finish {
  const uint8_t* queries;  // [rows, heads, 128], with strides in bytes
  int64_t query_stride, head_stride;
  const uint8_t* keys;
  int64_t key_stride;
  const float* scales;
  Candidates candidates;
  int32_t* out;     // [rows, k]
  int32_t* failed;  // [rows]
  int k, capacity;
};

struct FinishMemory {
  alignas(1024) uint8_t query[64 * kWidth];
  alignas(1024) uint8_t keys[kFinishGroups][2][kKeys * kWidth];  // later the selected positions
  alignas(16) float weights[64];
  HistogramMemory bins;
  uint32_t highest;
  alignas(16) uint2 entries[];  // [capacity]: (position, bits of the score), in ascending order of positions
};

// Copies the query and its weights to shared memory, in the layout of an MMA's operand.
__device__ __forceinline__ void load_query(const Prefill& p, const Finish& f, FinishMemory& s, int row) {
  for (int i = threadIdx.x; i < 64 * 8; i += kFinishThreads) {
    const int head = i / 8, piece = i % 8;
    uint4 bytes = make_uint4(0, 0, 0, 0);
    if (head < p.heads)
      bytes = __ldg(reinterpret_cast<const uint4*>(f.queries + row * f.query_stride + head * f.head_stride) + piece);
    *reinterpret_cast<uint4*>(s.query + head * kWidth + ((piece ^ head) & 7) * 16) = bytes;
  }
  if (threadIdx.x < 64) s.weights[threadIdx.x] = threadIdx.x < p.heads ? __ldg(p.weights + row * p.weight_stride + threadIdx.x) : 0.0f;
}

// Eight keys, bit 4 r of a word's half for key r, as eight bits.
__device__ __forceinline__ uint32_t eight_keys(uint32_t bits) {
  bits &= 0x11111111u;
  bits = (bits | bits >> 3) & 0x03030303u;
  bits = (bits | bits >> 6) & 0x000F000Fu;
  return (bits | bits >> 12) & 0xFFu;
}

// Lists the candidates of a row in `entries`, and returns their number. If they are more than `capacity`, none is listed.
__device__ __forceinline__ uint32_t list_candidates(const Finish& f, FinishMemory& s, int row, int2 range) {
  constexpr int kAll = 4 * kWordKeys;  // keys of four words
  const uint4* mask = reinterpret_cast<const uint4*>(f.candidates.mask + int64_t(row / 2) * f.candidates.words);
  const int query = row % 2, begin = range.x / kAll, end = (range.y + kAll - 1) / kAll, mine = (end - begin + kFinishThreads - 1) / kFinishThreads;
  const int first = begin + static_cast<int>(threadIdx.x) * mine, last = min(first + mine, end);
  const auto keys_of_words = [&](int at) {
    const uint4 four = __ldg(mask + at);
    const uint32_t words[] = {four.x, four.y, four.z, four.w};
    uint64_t keys = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t own = words[i] >> 2 * query;
      keys |= uint64_t(eight_keys(own) | eight_keys(own >> 1) << 8) << kWordKeys * i;
    }
    const int before = range.x - at * kAll, through = range.y - at * kAll;
    if (before > 0) keys &= ~uint64_t(0) << before;
    if (through < kAll) keys &= (uint64_t(1) << through) - 1;
    return keys;
  };
  uint32_t sum = 0;
  for (int at = first; at < last; ++at) {
    if (at * kAll >= range.x && (at + 1) * kAll <= range.y) {
      const uint32_t own = 0x33333333u << 2 * query;
      const uint4 four = __ldg(mask + at);
      sum += __popc(four.x & own) + __popc(four.y & own) + __popc(four.z & own) + __popc(four.w & own);
    } else {
      sum += __popcll(keys_of_words(at));
    }
  }
  const topk::Scan scan = topk::block_scan<kFinishThreads>(sum, s.bins.warp_sums[0]);
  if (scan.total > uint32_t(f.capacity)) return scan.total;
  uint32_t to = scan.before;
  for (int at = first; at < last; ++at)
    for (uint64_t keys = keys_of_words(at); keys != 0; keys &= keys - 1) s.entries[to++].x = at * kAll + __ffsll(keys) - 1;
  return scan.total;
}

// Computes the scores of all entries. Returns whether this thread saw one that is not finite; s.highest becomes the highest key.
__device__ __forceinline__ bool score_candidates(const Finish& f, FinishMemory& s, uint32_t count) {
  using All = Sums<64, kKeys>;
  constexpr uint32_t kStep = kKeys * kFinishGroups;
  const int group = uniform(threadIdx.x / kWarpgroup), thread = threadIdx.x % kWarpgroup;
  const uint32_t query = uniform(descriptor(s.query));
  float weights[16], d[32];
  load_weights<64>(weights, s.weights);
  const auto request = [&](uint32_t first, int stage) {  // 64 keys of 128 bytes, 16 bytes of four keys a thread
    if (first < count) {
      uint8_t* to = s.keys[group][stage];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = i * (kWarpgroup / 8) + thread / 8, piece = thread % 8;
        const uint32_t position = s.entries[min(first + key, count - 1)].x;
        common::copy16<0>(shared_address(to + key * kWidth + ((piece ^ key) & 7) * 16), f.keys + position * f.key_stride + piece * 16, 16);
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  bool strange = false;
  uint32_t highest = 0;
  request(group * kKeys, 0);
  int stage = 0;
  for (uint32_t first = group * kKeys; first < count; first += kStep, stage ^= 1) {
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    common::fence_async_proxy();
    common::named_sync(1 + group, kWarpgroup);  // the whole tile is there, and no MMA reads the one before any more
    multiply<64>(d, descriptor(s.keys[group][stage]), query);
    request(first + kStep, stage ^ 1);
    const uint32_t index = first + All::key();
    const float scale = __ldg(f.scales + s.entries[min(index, count - 1)].x);
    mma_wait<0>();
    hold(d);
    All sums;
    sums.add_up(d, weights);
    if (All::writes() && index < count) {
      const float score = sums.value[0] * scale;
      s.entries[index].y = __float_as_uint(score);
      strange = strange || !(fabsf(score) < INFINITY);
      highest = max(highest, topk::key_of(score));
    }
  }
  highest = __reduce_max_sync(~0u, highest);
  if (threadIdx.x % 32 == 0) atomicMax(&s.highest, highest);
  return strange;
}

// A candidate's order: by score, then by position. The lower position comes first.
__device__ __forceinline__ uint64_t candidate_rank(uint2 entry, uint32_t lowest) {
  return uint64_t(topk::key_of(__uint_as_float(entry.y)) - lowest) << kPositionBits | ((1u << kPositionBits) - 1 - entry.x);
}

// The lowest rank of the k best entries. kNone if fewer have at least the key `lowest`.
__device__ __forceinline__ uint64_t lowest_rank(FinishMemory& s, uint32_t count, uint32_t k, uint32_t lowest) {
  const int bits = kPositionBits + 32 - __clz(s.highest - lowest | 1);
  const int digits = (bits + kBinBits - 1) / kBinBits, spare = digits * kBinBits - bits;  // so that the first digit uses all bins
  uint64_t prefix = 0;
  uint32_t needed = k;
  for (int shift = (digits - 1) * kBinBits;; shift -= kBinBits) {
    clear_bins(s.bins);
    for (uint32_t i = threadIdx.x; i < count; i += kFinishThreads) {
      const uint2 entry = s.entries[i];
      const uint64_t rank = candidate_rank(entry, lowest) << spare;
      if (topk::key_of(__uint_as_float(entry.y)) >= lowest && rank >> (shift + kBinBits) == prefix)
        atomicAdd(&s.bins.histogram[uint32_t(rank >> shift) % kBins], 1);
    }
    __syncthreads();
    const topk::Found found = topk::find_digit<kFinishThreads>(s.bins, needed);
    __syncthreads();
    if (found.total < needed) return kNone;
    prefix = prefix << kBinBits | found.digit;
    needed -= found.above;
    if (found.count == needed) return (prefix << shift) >> spare;  // at the last digit at the latest, since all ranks differ
  }
}

// One CTA for each query.
__global__ void __launch_bounds__(kFinishThreads, 2) finish_kernel(const __grid_constant__ Prefill p, const __grid_constant__ Finish f) {
  extern __shared__ __align__(1024) uint8_t memory[];
  FinishMemory& s = *reinterpret_cast<FinishMemory*>(memory);
  const int row = blockIdx.x, thread = threadIdx.x;
  const int2 range = keys_of(p, row);
  const uint32_t k = f.k;
  int32_t* out = f.out + int64_t(row) * k;
  if (thread == 0) s.highest = 0, f.failed[row] = 0;
  if (range.x >= range.y) {
    for (uint32_t i = thread; i < k; i += kFinishThreads) out[i] = -1;
    return;
  }
  load_query(p, f, s, row);
  common::fence_async_proxy();
  const uint32_t count = list_candidates(f, s, row, range);
  __syncthreads();
  const float threshold = f.candidates.thresholds[row];
  bool fails = count > uint32_t(f.capacity) || (threshold > -INFINITY && count < k);
  if (!fails) fails = __syncthreads_or(score_candidates(f, s, count));
  // Keys that are no candidates could be better than one below the threshold.
  const uint32_t lowest = threshold > -INFINITY ? topk::key_of(threshold) : 0;
  uint64_t last = 0;  // the lowest rank that is selected
  if (!fails && (count > k || threshold > -INFINITY)) last = lowest_rank(s, count, k, lowest);
  if (fails || last == kNone) {
    if (thread == 0) f.failed[row] = 1;
    return;
  }

  // The positions, staged so that whole lines are written.
  const uint32_t mine = (count + kFinishThreads - 1) / kFinishThreads, begin = thread * mine, end = min(begin + mine, count);
  const auto is_selected = [&](uint2 entry) {
    return topk::key_of(__uint_as_float(entry.y)) >= lowest && candidate_rank(entry, lowest) >= last;
  };
  uint32_t sum = 0;
  for (uint32_t i = begin; i < end; ++i) sum += is_selected(s.entries[i]);
  const topk::Scan scan = topk::block_scan<kFinishThreads>(sum, s.bins.warp_sums[1]);
  int32_t* staged = reinterpret_cast<int32_t*>(s.keys);
  const int start = __ldg(p.starts + row);
  uint32_t to = scan.before;
  for (uint32_t i = begin; i < end; ++i)
    if (is_selected(s.entries[i])) staged[to++] = int32_t(s.entries[i].x) - start;
  __syncthreads();
  for (uint32_t i = thread; i < k; i += kFinishThreads) out[i] = i < scan.total ? staged[i] : -1;
}

}  // namespace indexer
