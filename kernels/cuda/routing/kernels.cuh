// MoE routing: the choice of experts (one warp for each token), the sorting of (token, expert) pairs by expert (one CTA counts them, then
// writes their positions), and the weighted sum of the experts' outputs.
#pragma once

#include <cuda_bf16.h>

#include "../common/pdl.cuh"

namespace routing {

constexpr int kRouteWarps = 4;  // tokens per CTA
constexpr int kCombineThreads = 128;
constexpr unsigned kAll = ~0u;

struct Routing {
  const float* logits;  // [tokens, count], count: the number of experts
  const float* bias;    // [count]
  int64_t* experts;     // [tokens, topk]
  float* weights;       // [tokens, topk]
  int64_t stride;       // between rows of logits
  int tokens, count, groups, topk_groups, topk;
  bool normalise;
  float scale;
};

// The key of a float: unsigned integers have the same order as the floats. -0 equals +0, NaN is the largest, and no float has key 0.
__device__ __forceinline__ uint32_t key_of(float x) {
  if (x != x) return ~0u;
  const uint32_t bits = __float_as_uint(x + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float value_of(uint32_t key) {
  return __uint_as_float(key >> 31 ? key & 0x7FFFFFFFu : ~key);
}
__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// kHeld: experts per lane.
template <int kHeld>
__global__ void __launch_bounds__(kRouteWarps * 32) route_kernel(Routing p) {
  extern __shared__ uint32_t shared_keys[];
  common::pdl_launch_dependents();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, token = blockIdx.x * kRouteWarps + warp;
  uint32_t* keys = shared_keys + warp * p.count;
  float bias[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) bias[i] = lane + 32 * i < p.count ? p.bias[lane + 32 * i] : 0.0f;
  common::pdl_wait();
  if (token >= p.tokens) return;
  const float* logits = p.logits + token * p.stride;
  uint32_t own[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int e = lane + 32 * i;
    own[i] = e < p.count ? key_of(sigmoid(logits[e]) + bias[i]) : 0;
    if (e < p.count) keys[e] = own[i];
  }
  __syncwarp();

  if (p.groups > 1) {
    const int size = p.count / p.groups;
    uint32_t score = 0;  // lane g holds the key of group g's score
    for (int g = 0; g < p.groups; ++g) {
      uint32_t first = 0, second = 0;
      for (int i = lane; i < size; i += 32) {
        const uint32_t key = keys[g * size + i];
        second = max(second, min(first, key));
        first = max(first, key);
      }
      const uint32_t best = __reduce_max_sync(kAll, first);
      const int holder = __ffs(__ballot_sync(kAll, first == best)) - 1;
      const uint32_t next = __reduce_max_sync(kAll, lane == holder ? second : first);
      const float sum = size > 1 ? value_of(best) + value_of(next) : value_of(best);
      if (lane == g) score = key_of(sum);
    }
    int better = 0;
    for (int g = 0; g < p.groups; ++g) {
      const uint32_t other = __shfl_sync(kAll, score, g);
      better += other > score || (other == score && g < lane);
    }
    const unsigned kept = __ballot_sync(kAll, lane < p.groups && better < p.topk_groups);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int e = lane + 32 * i;
      if (e < p.count && !(kept >> (e / size) & 1)) own[i] = key_of(-INFINITY);
    }
  }

  int expert = 0;  // lane i holds choice number i
  for (int choice = 0; choice < p.topk; ++choice) {
    uint32_t best = 0;
    unsigned at = kAll;
#pragma unroll
    for (int i = 0; i < kHeld; ++i)
      if (own[i] > best) best = own[i], at = lane + 32 * i;
    const uint32_t top = __reduce_max_sync(kAll, best);
    const unsigned winner = __reduce_min_sync(kAll, best == top ? at : kAll);
    if (lane == choice) expert = static_cast<int>(winner);
#pragma unroll
    for (int i = 0; i < kHeld; ++i)
      if (lane + 32 * i == winner) own[i] = 0;
  }
  const float score = lane < p.topk ? sigmoid(logits[expert]) : 0.0f;
  float sum = 0.0f;
  for (int choice = 0; choice < p.topk; ++choice) sum += __shfl_sync(kAll, score, choice);
  if (lane < p.topk) {
    p.experts[int64_t(token) * p.topk + lane] = expert;
    p.weights[int64_t(token) * p.topk + lane] = (p.normalise ? score / (sum + 1e-20f) : score) * p.scale;
  }
}

struct Grouping {
  const int64_t* experts;  // [pairs]
  int32_t* sorted_token_ids;     // [pairs]
  int32_t* inverse_permutation;  // [pairs]: the sorted row of each pair
  int32_t* offsets;              // [count + 1]
  int64_t first;                 // the first expert of this rank
  uint32_t step;                 // of every `step` experts, one is on this rank
  int pairs, topk, count;        // count: experts of this rank
  int warps;                     // warps that count pairs and write positions; the others only add counts up
};

// A counting sort. Each warp counts the pairs of its part by expert; prefix sums turn the counts into the position where the pairs of
// each expert and warp begin; then each warp writes the positions of its pairs.
__global__ void __launch_bounds__(1024) group_kernel(Grouping p) {
  extern __shared__ int32_t counts[];  // [warps][buckets]
  __shared__ int32_t sums[32];
  common::pdl_launch_dependents();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, buckets = p.count + 1;
  for (int i = threadIdx.x; i < p.warps * buckets; i += blockDim.x) counts[i] = 0;
  __syncthreads();
  common::pdl_wait();

  const int part = ((p.pairs + 32 * p.warps - 1) / (32 * p.warps)) * 32;
  const int begin = warp * part, end = min(begin + part, p.pairs);
  const auto bucket_of = [&](int pair) {  // pairs past the end get a bucket of their own
    if (pair >= end) return -1 - lane;
    const int64_t past = p.experts[pair] - p.first;
    if (past < 0 || past >= int64_t(p.count) * p.step) return p.count;
    const uint32_t local = static_cast<uint32_t>(past) / p.step;
    return local * p.step == past ? static_cast<int>(local) : p.count;
  };
  int32_t* own = counts + warp * buckets;
  if (warp < p.warps) {
    for (int pair = begin + lane; pair - lane < end; pair += 32) {
      const int bucket = bucket_of(pair);
      const unsigned same = __match_any_sync(kAll, bucket);
      if (bucket >= 0 && __ffs(same) - 1 == lane) own[bucket] += __popc(same);
      __syncwarp();
    }
  }
  __syncthreads();

  const int mine = threadIdx.x;
  int total = 0;
  if (mine < buckets) {
    for (int w = 0; w < p.warps; ++w) {
      const int count = counts[w * buckets + mine];
      counts[w * buckets + mine] = total;
      total += count;
    }
  }
  int before = total;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(kAll, before, step);
    if (lane >= step) before += other;
  }
  if (lane == 31) sums[warp] = before;
  __syncthreads();
  before -= total;
  for (int w = 0; w < warp; ++w) before += sums[w];
  if (mine < buckets) {
    p.offsets[mine] = before;
    for (int w = 0; w < p.warps; ++w) counts[w * buckets + mine] += before;
  }
  __syncthreads();

  if (warp < p.warps) {
    for (int pair = begin + lane; pair - lane < end; pair += 32) {
      const int bucket = bucket_of(pair);
      const unsigned same = __match_any_sync(kAll, bucket);
      if (bucket >= 0) {
        const int sorted_row = own[bucket] + __popc(same & ((1u << lane) - 1));
        p.inverse_permutation[pair] = sorted_row;
        p.sorted_token_ids[sorted_row] = pair / p.topk;
      }
      __syncwarp();
      if (bucket >= 0 && __ffs(same) - 1 == lane) own[bucket] += __popc(same);
      __syncwarp();
    }
  }
}

struct Combination {
  const void* rows;    // [tokens * topk, width], sorted by expert
  const void* shared;  // [tokens, width], or null
  const int32_t* inverse_permutation;  // [tokens, topk]
  const int32_t* end;                  // rows from *end on do not count
  const float* weights;                // [tokens, topk]
  void* out;                           // [tokens, width]
  int64_t stride, shared_stride;
  int topk, width;
};

// kWidth neighbouring elements, read and written at once.
template <class Element, int kWidth>
struct alignas(kWidth == 1 ? sizeof(Element) : 16) Vector {
  Element at[kWidth];
};

template <class Element, int kWidth>
__global__ void __launch_bounds__(kCombineThreads) combine_kernel(Combination p) {
  using Elements = Vector<Element, kWidth>;
  common::pdl_launch_dependents();
  common::pdl_wait();
  const int64_t token = blockIdx.x;
  const int column = (blockIdx.y * kCombineThreads + threadIdx.x) * kWidth;
  if (column >= p.width) return;
  const int end = *p.end;
  float total[kWidth] = {};
#pragma unroll 8
  for (int i = 0; i < p.topk; ++i) {
    const int sorted_row = p.inverse_permutation[token * p.topk + i];
    if (sorted_row < end) {
      const float weight = p.weights[token * p.topk + i];
      const Elements row = *reinterpret_cast<const Elements*>(static_cast<const Element*>(p.rows) + sorted_row * p.stride + column);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) total[j] = fmaf(weight, float(row.at[j]), total[j]);
    }
  }
  if (p.shared != nullptr) {
    const Elements row = *reinterpret_cast<const Elements*>(static_cast<const Element*>(p.shared) + token * p.shared_stride + column);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) total[j] += float(row.at[j]);
  }
  Elements out;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) out.at[j] = Element(total[j]);
  *reinterpret_cast<Elements*>(static_cast<Element*>(p.out) + token * p.width + column) = out;
}

}  // namespace routing
