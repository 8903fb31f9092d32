// MoE routing: the choice of experts (one warp for each token), the sorting of (token, expert) pairs by expert (one CTA counts them, then
// writes their positions), and the weighted sum of the experts' outputs.
#pragma once

#include <cuda_bf16.h>

#include "../common/cluster.cuh"
#include "../common/lane_sums.cuh"
#include "../common/pdl.cuh"

namespace routing {

using namespace common;

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

// A bit for each group that is kept; lane g has the key of group g's score.
__device__ __forceinline__ unsigned kept_groups(const Routing& p, uint32_t score, int lane) {
  int better = 0;
  for (int g = 0; g < p.groups; ++g) {
    const uint32_t other = __shfl_sync(kAll, score, g);
    better += other > score || (other == score && g < lane);
  }
  return __ballot_sync(kAll, lane < p.groups && better < p.topk_groups);
}

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
    const unsigned kept = kept_groups(p, score, lane);
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
  const int64_t* experts;  // [tokens, topk]
  int32_t* sorted_token_ids;     // [pairs]
  int32_t* inverse_permutation;  // [pairs]: the sorted row of each pair
  int32_t* offsets;              // [count + 1]
  int64_t stride;                // between rows of experts
  int64_t first;                 // the first expert of this rank
  uint32_t step;                 // of every `step` experts, one is on this rank
  int pairs, topk, count;        // count: experts of this rank
  int warps;                     // warps that count pairs and write positions; the others only add counts up

  // The number of an expert on this rank; `count` if another rank has it.
  __device__ __forceinline__ int bucket_of(int64_t expert) const {
    const int64_t past = expert - first;
    if (past < 0 || past >= int64_t(count) * step) return count;
    const uint32_t local = static_cast<uint32_t>(past) / step;
    return local * step == past ? static_cast<int>(local) : count;
  }
};

// A counting sort of the pairs by expert. Each warp counts the pairs of its part; prefix sums turn the counts into the position where the
// pairs of each expert and warp begin; then each warp writes the positions of its pairs. `expert_of` returns the expert of a pair. `counts`
// has [warps][buckets] elements that are zero, and all threads have passed a barrier since. With kCluster, the CTAs of a cluster, which have
// parts in the order of their ranks, call it together, and `totals` has [buckets] elements.
template <bool kCluster, class ExpertOf>
__device__ __forceinline__ void group_pairs(const Grouping& p, int32_t* counts, int32_t* totals, int32_t (&sums)[32], ExpertOf expert_of) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, buckets = p.count + 1;
  const int rank = kCluster ? static_cast<int>(common::cluster_rank()) : 0, cluster = kCluster ? static_cast<int>(gridDim.x) : 1;
  const int parts = p.warps * cluster, part = (p.pairs + 32 * parts - 1) / (32 * parts) * 32;
  const int begin = (rank * p.warps + warp) * part, end = min(begin + part, p.pairs);
  // Pairs past the end get a bucket of their own.
  const auto bucket_of = [&](int pair) { return pair < end ? p.bucket_of(expert_of(pair)) : -1 - lane; };
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
  int total = 0, earlier = 0;  // pairs of a bucket; and of its pairs, the ones of lower ranks
  if (mine < buckets) {
    for (int w = 0; w < p.warps; ++w) {
      const int count = counts[w * buckets + mine];
      counts[w * buckets + mine] = total;
      total += count;
    }
  }
  if constexpr (kCluster) {
    if (mine < buckets) totals[mine] = total;
    common::cluster_sync();
    total = 0;
    if (mine < buckets) {
      for (int peer = 0; peer < cluster; ++peer) {
        const int count = common::load_peer(totals + mine, peer);
        earlier += peer < rank ? count : 0;
        total += count;
      }
    }
    common::cluster_sync();  // no CTA ends while another reads its totals
  }
  int before = sum_through(total, lane);
  if (lane == 31) sums[warp] = before;
  __syncthreads();
  before -= total;
  if (mine < buckets) {
    for (int w = 0; w < warp; ++w) before += sums[w];
    if (rank == 0) p.offsets[mine] = before;
    for (int w = 0; w < p.warps; ++w) counts[w * buckets + mine] += before + earlier;
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

// One CTA, or the CTAs of one cluster.
template <bool kCluster>
__global__ void __launch_bounds__(1024) group_kernel(Grouping p) {
  extern __shared__ int32_t counts[];  // [warps][buckets], then totals [buckets]
  __shared__ int32_t sums[32];
  common::pdl_launch_dependents();
  for (int i = threadIdx.x; i < p.warps * (p.count + 1); i += blockDim.x) counts[i] = 0;
  __syncthreads();
  common::pdl_wait();
  const auto expert_of = [&](int pair) { return p.experts[pair / p.topk * p.stride + pair % p.topk]; };
  group_pairs<kCluster>(p, counts, counts + p.warps * (p.count + 1), sums, expert_of);
}

struct Gathering {
  const uint4* codes;         // e4m3 [tokens, pieces of 16]
  const float* scales;        // [tokens, groups]
  const int32_t* tokens;      // [rows]: the token of each sorted row
  const int32_t* end;         // rows from *end on are not written
  uint4* sorted_codes;        // [rows, pieces]
  float* sorted_scales;       // [rows, groups]
  int64_t stride, scale_stride;  // in pieces; in scales
  int rows, pieces, groups;
};

constexpr int kGatherWarps = 8, kGatherHeld = 7;

// The rows of tokens in the order of their experts. One warp for each row.
__global__ void __launch_bounds__(kGatherWarps * 32) gather_rows_kernel(Gathering p) {
  common::pdl_launch_dependents();
  common::pdl_wait();
  const int row = blockIdx.x * kGatherWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= p.rows || row >= *p.end) return;
  const int64_t token = p.tokens[row];
  const uint4* from = p.codes + token * p.stride;
  uint4* to = p.sorted_codes + int64_t(row) * p.pieces;
  for (int group = lane; group < p.groups; group += 32)
    p.sorted_scales[int64_t(row) * p.groups + group] = p.scales[token * p.scale_stride + group];
  for (int first = lane; first < p.pieces; first += 32 * kGatherHeld) {
    uint4 held[kGatherHeld];
#pragma unroll
    for (int i = 0; i < kGatherHeld; ++i)
      if (first + 32 * i < p.pieces) held[i] = from[first + 32 * i];
#pragma unroll
    for (int i = 0; i < kGatherHeld; ++i)
      if (first + 32 * i < p.pieces) to[first + 32 * i] = held[i];
  }
}

struct Combination {
  const void* rows;    // [tokens * topk, width], sorted by expert
  const void* shared;  // [tokens, width], or null
  const int32_t* inverse_permutation;  // [tokens, topk]
  const int32_t* end;                  // rows from *end on do not count
  const float* weights;                // [tokens, topk]
  void* out;                           // [tokens, width]
  int64_t stride, shared_stride, weight_stride;
  int topk, width;
};

// kWidth neighbouring elements, read and written at once.
template <class Element, int kWidth>
struct alignas(kWidth == 1 ? sizeof(Element) : 16) Vector {
  Element at[kWidth];
};

// The weighted sum of a token's rows, in the order of its experts, the shared expert last: kPieces times kWidth neighbouring columns that
// are `apart` from each other. A thread loads kAtOnce of the rows that count before it adds the first. All threads of a warp call it;
// those whose columns are past the width get a sum that means nothing.
template <class Element, int kWidth, int kPieces, int kAtOnce>
__device__ __forceinline__ void combined(const Combination& p, int64_t token, int column, int apart, float (&total)[kPieces * kWidth]) {
  using Elements = Vector<Element, kWidth>;
  const bool inside = column < p.width;
  const auto load = [&](const void* rows, int64_t row, int64_t stride, int piece) {
    return *reinterpret_cast<const Elements*>(static_cast<const Element*>(rows) + row * stride + column + piece * apart);
  };
  const int end = *p.end, lane = threadIdx.x % 32;
  Elements shared[kPieces] = {};
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece)
    if (p.shared != nullptr && inside) shared[piece] = load(p.shared, token, p.shared_stride, piece);
#pragma unroll
  for (int j = 0; j < kPieces * kWidth; ++j) total[j] = 0.0f;
  for (int first = 0; first < p.topk; first += 32) {
    const bool exists = first + lane < p.topk;
    const int place = exists ? p.inverse_permutation[token * p.topk + first + lane] : end;
    const float weight = exists ? p.weights[token * p.weight_stride + first + lane] : 0.0f;
    for (uint32_t left = __ballot_sync(~0u, place < end); left != 0;) {  // the same in all lanes
      const int count = __popc(left);
      float weights[kAtOnce];
      Elements rows[kAtOnce][kPieces];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int64_t row = __shfl_sync(~0u, place, __ffs(left) - 1);
        weights[i] = __shfl_sync(~0u, weight, __ffs(left) - 1);
        left &= left - 1;
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece) {
          rows[i][piece] = {};
          if (i < count && inside) rows[i][piece] = load(p.rows, row, p.stride, piece);
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (i < count) {
#pragma unroll
          for (int j = 0; j < kPieces * kWidth; ++j)
            total[j] = fmaf(weights[i], float(rows[i][j / kWidth].at[j % kWidth]), total[j]);
        }
    }
  }
  if (p.shared != nullptr) {
#pragma unroll
    for (int j = 0; j < kPieces * kWidth; ++j) total[j] += float(shared[j / kWidth].at[j % kWidth]);
  }
}

template <class Element, int kWidth>
__global__ void __launch_bounds__(kCombineThreads) combine_kernel(Combination p) {
  common::pdl_launch_dependents();
  common::pdl_wait();
  const int64_t token = blockIdx.x;
  const int column = (blockIdx.y * kCombineThreads + threadIdx.x) * kWidth;
  float total[kWidth];
  combined<Element, kWidth, 1, 4>(p, token, column, 0, total);
  if (column >= p.width) return;
  Vector<Element, kWidth> out;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) out.at[j] = Element(total[j]);
  *reinterpret_cast<Vector<Element, kWidth>*>(static_cast<Element*>(p.out) + token * p.width + column) = out;
}

}  // namespace routing
