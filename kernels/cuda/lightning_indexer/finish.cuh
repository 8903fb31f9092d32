// The selection among the candidates of a query. By the bounds of their scores most are certainly selected, or certainly not. Only the scores
// of the others are computed exactly, with the MMAs and sums of prefill.cuh.
//
// A query is marked in `failed`, and its row of the result means nothing, if its sample was misleading (fewer than k keys reach the threshold,
// or more than fit into its list) or if a bound is not finite.
#pragma once

#include "candidates.cuh"
#include "sample.cuh"

namespace indexer {

constexpr int kAtOnce = 6;  // entries of a thread whose loads are under way together

struct Finish {
  const uint8_t* queries;  // [rows, heads, 128], with strides in bytes
  int64_t query_stride, head_stride;
  const uint8_t* keys;
  int64_t key_stride;
  const float* scales;
  Candidates candidates;
  int32_t* out;     // [rows, k]
  int32_t* failed;  // [rows]
  int k;
};

struct FinishMemory {
  alignas(1024) uint8_t query[64 * kWidth];
  alignas(1024) uint8_t keys[2][kKeys * kWidth];
  alignas(16) float weights[64];
  HistogramMemory bins;
  float lowest[8], highest[8];
  uint32_t count, open, selected;
  alignas(16) uint2 entries[];  // [capacity]; then the bitmap
};

// A candidate's order: by score, then by position. The lower position comes first.
__device__ __forceinline__ uint64_t candidate_rank(uint2 entry) {  // (position, bits of the score)
  return uint64_t(topk::key_of(__uint_as_float(entry.y))) << kPositionBits | ((1u << kPositionBits) - 1 - entry.x);
}

// One CTA for each query.
__global__ void __launch_bounds__(kFinishThreads, 2) finish_kernel(const __grid_constant__ Prefill p, const __grid_constant__ Finish f) {
  extern __shared__ __align__(1024) uint8_t memory[];
  FinishMemory& s = *reinterpret_cast<FinishMemory*>(memory);
  const int row = blockIdx.x, thread = threadIdx.x, lane = thread % 32, warp = thread / 32, capacity = f.candidates.capacity;
  uint32_t* bitmap = reinterpret_cast<uint32_t*>(s.entries + capacity);
  const int2 range = keys_of(p, row);
  const int length = range.y - range.x, words = (length + 31) / 32;
  const uint32_t k = f.k, reserved = f.candidates.reserved[row];
  const float threshold = f.candidates.thresholds[row];
  int32_t* out = f.out + int64_t(row) * k;
  if (thread == 0) s.count = s.open = s.selected = 0, f.failed[row] = reserved > capacity;
  if (length <= 0 || reserved > capacity) {
    for (uint32_t i = thread; i < k; i += kFinishThreads) out[i] = -1;
    return;
  }
  // The query and its weights, in the layout of an MMA's operand.
  for (int i = thread; i < 64 * 8; i += kFinishThreads) {
    const int head = i / 8, piece = i % 8;
    uint4 bytes = make_uint4(0, 0, 0, 0);
    if (head < p.heads)
      bytes = __ldg(reinterpret_cast<const uint4*>(f.queries + row * f.query_stride + head * f.head_stride) + piece);
    *reinterpret_cast<uint4*>(s.query + head * kWidth + ((piece ^ head) & 7) * 16) = bytes;
  }
  common::fence_async_proxy();
  if (thread < 64) s.weights[thread] = thread < p.heads ? __ldg(p.weights + row * p.weight_stride + thread) : 0.0f;
  for (int i = thread; i < words; i += kFinishThreads) bitmap[i] = 0;
  clear_bins(s.bins);

  // Candidates to shared memory. The width of an interval is added to what rounding takes away.
  const auto lower_of = [](uint2 entry) { return __fsub_rd(__uint_as_float(entry.y), __uint_as_float(entry.x >> kPositionBits << 19)); };
  const auto upper_of = [](uint2 entry) { return __uint_as_float(entry.y); };
  const uint2* from = f.candidates.entries + int64_t(row) * capacity;
  float lowest = INFINITY, highest = -INFINITY;
  bool strange = false;
  for (uint32_t first = 0; first < reserved; first += kAtOnce * kFinishThreads) {
    uint2 some[kAtOnce];
    uint32_t found[kAtOnce], all = 0;
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const uint32_t i = first + j * kFinishThreads + thread;
      some[j] = i < reserved ? __ldcs(from + i) : make_uint2(0, __float_as_uint(-INFINITY));
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const float upper = upper_of(some[j]), lower = lower_of(some[j]);
      const bool valid = upper != -INFINITY;
      strange = strange || (valid && !(upper < INFINITY && lower > -INFINITY));
      lowest = valid ? fminf(lowest, lower) : lowest;
      highest = fmaxf(highest, upper);
      found[j] = __ballot_sync(~0u, valid);
      all += __popc(found[j]);
    }
    uint32_t to = 0;
    if (lane == 0) to = atomicAdd(&s.count, all);
    to = __shfl_sync(~0u, to, 0);
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      if (found[j] >> lane & 1) s.entries[to + __popc(found[j] & ((1u << lane) - 1))] = some[j];
      to += __popc(found[j]);
    }
  }
  const uint32_t low_key = __reduce_min_sync(~0u, topk::key_of(lowest)), high_key = __reduce_max_sync(~0u, topk::key_of(highest));
  if (lane == 0) s.lowest[warp] = topk::value_of(low_key), s.highest[warp] = topk::value_of(high_key);
  if (__syncthreads_or(strange)) {
    if (thread == 0) f.failed[row] = 1;
    return;
  }
  const uint32_t count = s.count;
  if (threshold > -INFINITY && count <= k) {
    if (thread == 0) f.failed[row] = 1;
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) lowest = fminf(lowest, s.lowest[i]), highest = fmaxf(highest, s.highest[i]);
  lowest = fmaxf(lowest, threshold);
  const float factor = highest - lowest > 1e-30f ? float(kBins - 1) / (highest - lowest) : 0.0f;
  // A higher value never has a lower bin, whatever the values are.
  const auto bin_of = [&](float value) { return uint32_t(fminf(fmaxf(value - lowest, 0.0f) * factor, float(kBins - 1))); };

  uint32_t least = 0, sure = 0;  // candidates below bin `least` are not selected; those whose lower bound is in bin `sure` or above are
  if (count > k) {
    for (uint32_t i = thread; i < count; i += kFinishThreads) atomicAdd(&s.bins.histogram[bin_of(lower_of(s.entries[i]))], 1);
    __syncthreads();
    least = topk::find_digit<kFinishThreads>(s.bins, k).digit;
    __syncthreads();
    clear_bins(s.bins);
    for (uint32_t i = thread; i < count; i += kFinishThreads) atomicAdd(&s.bins.histogram[bin_of(upper_of(s.entries[i]))], 1);
    __syncthreads();
    sure = topk::find_digit<kFinishThreads>(s.bins, k + 1).digit + 1;  // at most k upper bounds are that high
  }
  const auto mark = [&](uint32_t position) {
    const uint32_t bit = position - range.x;
    atomicOr(&bitmap[bit / 32], 1u << bit % 32);
  };
  // Those that are neither move to the front: a warp writes only where all warps have read.
  uint32_t selected = 0;  // of those that this thread sees
  for (uint32_t first = 0; first < count; first += kAtOnce * kFinishThreads) {
    uint32_t positions[kAtOnce], found[kAtOnce], all = 0;
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const uint32_t i = first + j * kFinishThreads + thread;
      const uint2 entry = i < count ? s.entries[i] : make_uint2(0, 0);
      positions[j] = entry.x & ((1u << kPositionBits) - 1);
      const bool certain = i < count && bin_of(lower_of(entry)) >= sure;
      if (certain) mark(positions[j]);
      selected += certain;
      found[j] = __ballot_sync(~0u, i < count && !certain && bin_of(upper_of(entry)) >= least);
      all += __popc(found[j]);
    }
    uint32_t to = 0;
    if (lane == 0) to = atomicAdd(&s.open, all);
    to = __shfl_sync(~0u, to, 0);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      if (found[j] >> lane & 1) s.entries[to + __popc(found[j] & ((1u << lane) - 1))] = make_uint2(positions[j], 0);
      to += __popc(found[j]);
    }
    __syncthreads();
  }
  selected = __reduce_add_sync(~0u, selected);
  if (lane == 0) atomicAdd(&s.selected, selected);
  __syncthreads();
  const uint32_t open = s.open;

  if (open > 0) {  // their scores
    using All = Sums<64, 64>;
    const int group = uniform(thread / kWarpgroup);
    float weights[16], d[32];
    load_weights<64>(weights, s.weights);
    uint4 pieces[4];
    const auto load = [&](uint32_t first) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = i * kWarpgroup + thread % kWarpgroup;
        const uint32_t position = s.entries[min(first + at / 8, open - 1)].x;
        pieces[i] = __ldg(reinterpret_cast<const uint4*>(f.keys + position * f.key_stride) + at % 8);
      }
    };
    load(group * kKeys);
    for (uint32_t first = group * kKeys; first < open; first += kKeys * (kFinishThreads / kWarpgroup)) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = i * kWarpgroup + thread % kWarpgroup, key = at / 8;
        *reinterpret_cast<uint4*>(s.keys[group] + key * kWidth + ((at ^ key) & 7) * 16) = pieces[i];
      }
      const uint32_t index = first + All::key();
      const float scale = __ldg(f.scales + s.entries[min(index, open - 1)].x);
      common::fence_async_proxy();
      common::named_sync(1 + group, kWarpgroup);
      multiply<64>(d, descriptor(s.keys[group]), descriptor(s.query));
      load(first + kKeys * (kFinishThreads / kWarpgroup));  // the next keys
      mma_wait<0>();
      hold(d);
      All sums;
      sums.add_up(d, weights);
      if (All::writes() && index < open) s.entries[index].y = __float_as_uint(sums.value[0] * scale);
      common::named_sync(1 + group, kWarpgroup);
    }
    __syncthreads();
    const uint32_t lacking = k - min(k, s.selected);
    uint64_t last = 0;  // the lowest rank that is selected
    if (open > lacking && lacking > 0) {
      uint64_t prefix = 0;
      uint32_t needed = lacking;
      for (int shift = 5 * kBinBits;; shift -= kBinBits) {
        clear_bins(s.bins);
        for (uint32_t i = thread; i < open; i += kFinishThreads) {
          const uint64_t rank = candidate_rank(s.entries[i]);
          if (rank >> (shift + kBinBits) == prefix) atomicAdd(&s.bins.histogram[uint32_t(rank >> shift) % kBins], 1);
        }
        __syncthreads();
        const topk::Found found = topk::find_digit<kFinishThreads>(s.bins, needed);
        __syncthreads();
        prefix = prefix << kBinBits | found.digit;
        needed -= found.above;
        last = prefix << shift;
        if (found.count == needed) break;  // at the last digit at the latest, since all ranks differ
      }
    }
    bool fails = false;  // keys that are no candidates could be better than one that is selected
    for (uint32_t i = thread; i < open; i += kFinishThreads) {
      const uint2 entry = s.entries[i];
      if (lacking == 0 || candidate_rank(entry) < last) continue;
      mark(entry.x);
      fails = fails || !(__uint_as_float(entry.y) >= threshold);
    }
    if (__syncthreads_or(fails)) {
      if (thread == 0) f.failed[row] = 1;
      return;
    }
  }
  __syncthreads();

  // The positions in ascending order, staged so that whole lines are written.
  int32_t* staged = reinterpret_cast<int32_t*>(s.entries);
  const int mine = (words + kFinishThreads - 1) / kFinishThreads, begin = thread * mine, offset = range.x - __ldg(p.starts + row);
  uint32_t sum = 0;
  for (int i = begin; i < min(begin + mine, words); ++i) sum += __popc(bitmap[i]);
  const topk::Scan scan = topk::block_scan<kFinishThreads>(sum, s.bins.warp_sums[1]);
  uint32_t to = scan.before;
  for (int i = begin; i < min(begin + mine, words); ++i)
    for (uint32_t word = bitmap[i]; word; word &= word - 1) staged[to++] = 32 * i + __ffs(word) - 1 + offset;
  __syncthreads();
  for (uint32_t i = thread; i < k; i += kFinishThreads) out[i] = i < scan.total ? staged[i] : -1;
}

}  // namespace indexer
