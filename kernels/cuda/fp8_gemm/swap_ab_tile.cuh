// The token tiles of the kernel for small M, and the products that share a launch.
#pragma once

#include <algorithm>

#include "product.cuh"

namespace gemm {

template <int kTokens>
struct SwapAB {
  static constexpr int kThreads = 288;  // two math warpgroups, one producer warp
  static constexpr int kStageBytes = kWeightBytes + kTokens * kSlice;
  static constexpr int kCtas = kTokens <= 64 ? 2 : 1;  // on a multiprocessor
  static constexpr int kPitch = kWeights + 4;          // floats; the 4 more avoid bank conflicts between tokens
  static constexpr int kMaxStages = 12;
  static constexpr int kBarrierBytes = 2 * kMaxStages * 8;

  // The number of stages that fit into shared memory beside the scales of a part of K.
  static int stages(int slices, int splits, int shared_bytes) {
    const int scale_bytes = (slices + splits - 1) / splits * kTokens * 4;
    return std::min((shared_bytes - kBarrierBytes - scale_bytes) / kStageBytes, kMaxStages);
  }
};

// Up to three products in one launch, all with the same token tile and the same number of parts of K: projections of the same rows, or
// the routed experts and the shared expert. A cluster works on one of them.
constexpr int kMaxJobs = 3;
struct Job {
  CUtensorMap a_map, b_map;  // a_map: boxes of kTokens rows, or of one row where rows are gathered; b_map: boxes of 128 rows
  Product product;
  int tiles;        // of 128 rows of b
  int clusters;     // tiles x slots for token tiles; the last slots may be empty
};
struct Jobs {
  Job job[kMaxJobs];
};

struct TokenTile {
  int expert, first, last;  // rows [first, last); none if there is no such tile
};

// Token tile number `slot`, in the order of experts. Each lane counts the tiles of a range of experts.
template <int kTokens>
__device__ __forceinline__ TokenTile find_token_tile(const Product& p, int slot) {
  if (p.offsets == nullptr) return {0, slot * kTokens, min(p.rows, (slot + 1) * kTokens)};
  const int lane = threadIdx.x % 32, share = (p.experts + 31) / 32, begin = min(lane * share, p.experts);
  const int end = min(begin + share, p.experts);
  int own = 0, bound = p.offsets[begin];
#pragma unroll 8
  for (int e = begin; e < end; ++e) {
    const int next = p.offsets[e + 1];
    own += (next - bound + kTokens - 1) / kTokens;
    bound = next;
  }
  int before = own;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(~0u, before, step);
    if (lane >= step) before += other;
  }
  before -= own;
  TokenTile found = {0, 0, 0};
  const unsigned holder = __ballot_sync(~0u, slot >= before && slot < before + own);
  if (holder == 0) return found;
  if (holder >> lane & 1) {
    int left = slot - before;
    for (int e = begin; e < end; ++e) {
      const int first = p.offsets[e], last = p.offsets[e + 1], tiles = (last - first + kTokens - 1) / kTokens;
      if (left < tiles) {
        found = {e, first + left * kTokens, min(last, first + (left + 1) * kTokens)};
        break;
      }
      left -= tiles;
    }
  }
  const int from = __ffs(holder) - 1;
  return {__shfl_sync(~0u, found.expert, from), __shfl_sync(~0u, found.first, from), __shfl_sync(~0u, found.last, from)};
}

}  // namespace gemm
