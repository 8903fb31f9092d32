// One launch where kernels.cuh takes two, for the few tokens of a decode step in the released model's shapes: the choice of experts with the
// sorting of pairs, for up to 8 groups of 32 experts; and the sum of the experts' outputs with the norm of the next layer. Same results.
#pragma once

#include "../common/normed_rows.cuh"
#include "kernels.cuh"

namespace routing {

constexpr int kGroupSize = 32, kMaxGroups = 8;           // a warp has the experts of a group
constexpr int kTokenThreads = kGroupSize * kMaxGroups;   // threads of a token
constexpr int kTokensAtOnce = 1024 / kTokenThreads;      // tokens that a CTA of all threads handles at a time
constexpr int kMaxCluster = 8;                           // CTAs

struct RoutingAndGrouping {
  Routing routing;
  Grouping grouping;
};

// Chooses experts for the tokens of this CTA. In a cluster CTA r has the tokens 4r to 4r + 3, then those 4 * cluster later, and so on.
__device__ __forceinline__ void choose_experts(const Routing& p, int rank, int cluster, int64_t* chosen) {
  __shared__ uint32_t keys[kTokensAtOnce][kTokenThreads];
  __shared__ uint32_t group_scores[kTokensAtOnce][kMaxGroups];
  __shared__ float scores[kTokensAtOnce][32];
  const int slot = threadIdx.x / kTokenThreads, expert = threadIdx.x % kTokenThreads, group = expert / 32, lane = threadIdx.x % 32;
  const bool exists = expert < p.count;
  const float bias = exists ? p.bias[expert] : 0.0f;
  common::pdl_wait();
  for (int first = rank * kTokensAtOnce; first < p.tokens; first += cluster * kTokensAtOnce) {
    const int token = first + slot;
    const float score = exists && token < p.tokens ? sigmoid(p.logits[token * p.stride + expert]) : 0.0f;
    const uint32_t key = exists ? key_of(score + bias) : 0;
    const uint32_t best = __reduce_max_sync(kAll, key);
    const int holder = __ffs(__ballot_sync(kAll, key == best)) - 1;
    const uint32_t next = __reduce_max_sync(kAll, lane == holder ? 0 : key);
    keys[slot][expert] = key;
    if (lane == 0) group_scores[slot][group] = key_of(value_of(best) + value_of(next));
    __syncthreads();

    const uint32_t own = lane < p.groups ? group_scores[slot][lane] : 0;
    const unsigned kept = kept_groups(p, own, lane);
    int place = p.topk;  // the number of kept experts that come before this one
    if (kept >> group & 1) {
      place = 0;
      for (unsigned left = kept; left != 0; left &= left - 1) {
        const int g = __ffs(left) - 1;
        const uint32_t least = key + (g > group);  // of equal keys that of the lower expert counts, which comes first
        const uint4* others = reinterpret_cast<const uint4*>(keys[slot] + g * kGroupSize);
        if (g != group) {
#pragma unroll
          for (int i = 0; i < kGroupSize / 4; ++i) {
            const uint4 k = others[i];
            place += (k.x >= least) + (k.y >= least) + (k.z >= least) + (k.w >= least);
          }
          if (least == 0) place -= kGroupSize;  // after the key of NaN, than which none is larger
        } else {
#pragma unroll
          for (int i = 0; i < kGroupSize; ++i) {
            const uint32_t k = __shfl_sync(kAll, key, i);
            place += k > key || (k == key && i < lane);
          }
        }
      }
    }
    if (place < p.topk && token < p.tokens) {
      scores[slot][place] = score;
      if (cluster == 1) chosen[slot * p.topk + place] = expert;
      p.experts[int64_t(token) * p.topk + place] = expert;
    }
    __syncthreads();
    if (expert < p.topk && token < p.tokens) {
      float sum = 0.0f;
      for (int choice = 0; choice < p.topk; ++choice) sum += scores[slot][choice];
      const float own_score = scores[slot][expert];
      p.weights[int64_t(token) * p.topk + expert] = (p.normalise ? own_score / (sum + 1e-20f) : own_score) * p.scale;
    }
    __syncthreads();
  }
}

// The same sorting of up to 32 pairs, by comparing each with all others. All threads of the CTA call it after a barrier.
constexpr int kFewPairs = 32;
__device__ __forceinline__ void group_few_pairs(const Grouping& p, const int64_t* chosen) {
  __shared__ int buckets[kFewPairs];
  const int own = threadIdx.x;
  if (own < kFewPairs) buckets[own] = own < p.pairs ? p.bucket_of(chosen[own]) : p.count + 1;
  __syncthreads();
  if (own > p.count && own >= p.pairs) return;
  const int bucket = own < p.pairs ? buckets[own] : 0;
  int offset = 0, sorted_row = 0;
#pragma unroll
  for (int pair = 0; pair < kFewPairs; ++pair) {
    const int other = buckets[pair];
    offset += other < own;
    sorted_row += other < bucket || (other == bucket && pair < own);
  }
  if (own <= p.count) p.offsets[own] = offset;
  if (own < p.pairs) {
    p.inverse_permutation[own] = sorted_row;
    p.sorted_token_ids[sorted_row] = own / p.topk;
  }
}

// One cluster. Its first CTA reads what the others have chosen from global memory, which the cluster's barrier makes visible.
__global__ void __launch_bounds__(1024) route_and_group_kernel(RoutingAndGrouping p) {
  extern __shared__ int32_t counts[];  // [warps][buckets]
  __shared__ int32_t sums[32];
  __shared__ int64_t chosen[kTokensAtOnce * 32];  // without a cluster of several CTAs
  common::pdl_launch_dependents();
  const int rank = blockIdx.x, cluster = gridDim.x;
  const bool few = cluster == 1 && p.grouping.pairs <= kFewPairs;
  if (!few)
    for (int i = threadIdx.x; i < p.grouping.warps * (p.grouping.count + 1); i += blockDim.x) counts[i] = 0;
  choose_experts(p.routing, rank, cluster, chosen);
  if (few) return group_few_pairs(p.grouping, chosen);
  if (cluster == 1) {
    __syncthreads();
    group_pairs<false>(p.grouping, counts, nullptr, sums, [&](int pair) { return chosen[pair]; });
    return;
  }
  __threadfence();
  common::cluster_sync();
  if (rank == 0) group_pairs<false>(p.grouping, counts, nullptr, sums, [&](int pair) { return __ldcg(p.grouping.experts + pair); });
}

// ---- The sum of the experts' outputs, the residual stream, and the norm of the next layer with its FP8 operand, in one launch for few tokens.

constexpr int kNormThreads = 64, kNormWarps = kNormThreads / 32;      // of a CTA
constexpr int kColumnsOfCta = kNormThreads * common::kHeldOfGroup;    // 1024
constexpr int kMaxNormCluster = 8;

struct CombinedNorm {
  Combination sum;  // its `out` is not used
  common::NormedRows rows;
};

// A cluster of several CTAs takes a token.
__global__ void __launch_bounds__(kNormThreads) combine_norm_kernel(CombinedNorm p) {
  __shared__ float sums[kMaxNormCluster * kNormWarps];
  __shared__ uint64_t pushed;
  pdl_launch_dependents();
  const int cluster = p.sum.width / kColumnsOfCta, rank = static_cast<int>(cluster_rank());
  const int64_t token = blockIdx.x / cluster;
  const int place = rank * kNormThreads + threadIdx.x, lane = threadIdx.x % 32, column = column_of(place / kGroupLanes, lane);
  if (!p.rows.static_gain) pdl_wait();
  float gain[kHeldOfGroup];
  load_gain(gain, p.rows.gain + column);
  if (threadIdx.x == 0) {
    barrier_init(shared_address(&pushed), 1);
    barrier_arrive_expect(shared_address(&pushed), cluster * kNormWarps * 4);
  }
  cluster_sync_barriers();
  pdl_wait();
  uint4 stream[kPieces];
  p.rows.load_residual(stream, token, column);
  float values[kHeldOfGroup];
  combined<__nv_bfloat16, kPiece, kPieces, 8>(p.sum, token, column, kApart, values);
#pragma unroll
  for (int i = 0; i < kPieces; ++i) round8(values + i * kPiece);
  float squares = sum_of_lanes(p.rows.add(values, stream, token, column));
  if (lane < cluster) push(sums + rank * kNormWarps + threadIdx.x / 32, squares, shared_address(&pushed), lane);
  barrier_wait(shared_address(&pushed), 0);
  squares = 0.0f;
  for (int w = 0; w < cluster * kNormWarps; ++w) squares += sums[w];
  p.rows.norm(values, gain, squares, token, column, lane);
}

}  // namespace routing
