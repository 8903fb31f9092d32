// Choosing experts (a warp a token), sorting pairs by expert (one CTA counts, then places), and adding up what the experts made.
#pragma once

#include <cuda_bf16.h>

#include "../common/pdl.cuh"

namespace routing {

constexpr int kRouteWarps = 4;       // tokens of a CTA
constexpr int kCombineThreads = 128;
constexpr unsigned kAll = ~0u;

struct Routing {
  const float* logits;  // [tokens, count]
  const float* bias;    // [count]
  int64_t* experts;     // [tokens, chosen]
  float* weights;       // [tokens, chosen]
  int64_t stride;       // between rows of logits
  int tokens, count, groups, kept, chosen;
  bool normalise;
  float scale;
};

// Unsigned integers in the order of floats; -0 equals +0, NaN is the largest, and no float is 0.
__device__ __forceinline__ uint32_t key_of(float x) {
  if (x != x) return ~0u;
  const uint32_t bits = __float_as_uint(x + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float value_of(uint32_t key) {
  return __uint_as_float(key >> 31 ? key & 0x7FFFFFFFu : ~key);
}
__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// kHeld: experts that a lane holds.
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
    uint32_t score = 0;  // lane g holds that of group g
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
    const unsigned kept = __ballot_sync(kAll, lane < p.groups && better < p.kept);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int e = lane + 32 * i;
      if (e < p.count && !(kept >> (e / size) & 1)) own[i] = key_of(-INFINITY);
    }
  }

  int expert = 0;  // lane i holds the i-th choice
  for (int choice = 0; choice < p.chosen; ++choice) {
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
  const float score = lane < p.chosen ? sigmoid(logits[expert]) : 0.0f;
  float sum = 0.0f;
  for (int choice = 0; choice < p.chosen; ++choice) sum += __shfl_sync(kAll, score, choice);
  if (lane < p.chosen) {
    p.experts[int64_t(token) * p.chosen + lane] = expert;
    p.weights[int64_t(token) * p.chosen + lane] = (p.normalise ? score / (sum + 1e-20f) : score) * p.scale;
  }
}

struct Grouping {
  const int64_t* experts;  // [pairs]
  int32_t *tokens, *places;  // [pairs]
  int32_t* offsets;        // [count + 1]
  int64_t first;
  uint32_t step;  // every so many experts, one is here
  int pairs, chosen, count;
  int warps;  // that count and place; the others only add up
};

// Each warp counts the pairs of its part, expert by expert; the counts become the places where its pairs of that expert begin.
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
  const auto bucket_of = [&](int pair) {  // those past the end meet nobody
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
        const int place = own[bucket] + __popc(same & ((1u << lane) - 1));
        p.places[pair] = place;
        p.tokens[place] = pair / p.chosen;
      }
      __syncwarp();
      if (bucket >= 0 && __ffs(same) - 1 == lane) own[bucket] += __popc(same);
      __syncwarp();
    }
  }
}

struct Combination {
  const void* rows;    // [tokens * chosen, width], sorted by expert
  const void* shared;  // [tokens, width], or null
  const int32_t* places;  // [tokens, chosen]
  const int32_t* end;     // rows from *end on do not count
  const float* weights;   // [tokens, chosen]
  void* out;              // [tokens, width]
  int64_t stride, shared_stride;
  int chosen, width;
};

template <class Element, int kPiece>
struct alignas(kPiece == 1 ? sizeof(Element) : 16) Piece {
  Element at[kPiece];
};

template <class Element, int kPiece>
__global__ void __launch_bounds__(kCombineThreads) combine_kernel(Combination p) {
  using Vector = Piece<Element, kPiece>;
  common::pdl_launch_dependents();
  common::pdl_wait();
  const int64_t token = blockIdx.x;
  const int column = (blockIdx.y * kCombineThreads + threadIdx.x) * kPiece;
  if (column >= p.width) return;
  const int end = *p.end;
  float total[kPiece] = {};
#pragma unroll 8
  for (int i = 0; i < p.chosen; ++i) {
    const int place = p.places[token * p.chosen + i];
    if (place < end) {
      const float weight = p.weights[token * p.chosen + i];
      const Vector row = *reinterpret_cast<const Vector*>(static_cast<const Element*>(p.rows) + place * p.stride + column);
#pragma unroll
      for (int j = 0; j < kPiece; ++j) total[j] = fmaf(weight, float(row.at[j]), total[j]);
    }
  }
  if (p.shared != nullptr) {
    const Vector row = *reinterpret_cast<const Vector*>(static_cast<const Element*>(p.shared) + token * p.shared_stride + column);
#pragma unroll
    for (int j = 0; j < kPiece; ++j) total[j] += float(row.at[j]);
  }
  Vector out;
#pragma unroll
  for (int j = 0; j < kPiece; ++j) out.at[j] = Element(total[j]);
  *reinterpret_cast<Vector*>(static_cast<Element*>(p.out) + token * p.width + column) = out;
}

}  // namespace routing
