// The kernel for small M, by swap-AB (the name that CUTLASS and DeepGEMM use): 128 rows of weights are the M dimension of the MMAs and the
// tokens their N dimension, so that each weight is read once and little of an MMA is spent on padding. Split-K: the CTAs of a cluster
// take a part of K each, and add the parts through shared memory in a fixed order, so that results are bitwise reproducible.
#pragma once

#include <algorithm>

#include "product.cuh"

namespace gemm {

// ---- The token tiles of the kernel for small M, and the products that share a launch.

template <int kTokens>
struct SwapAB {
  static constexpr int kThreads = 288;  // two math warpgroups, one producer warp
  static constexpr int kStageBytes = kWeightBytes + kTokens * kSlice;
  static constexpr int kCtas = kTokens <= 64 ? 2 : 1;  // on a multiprocessor
  static constexpr int kPitch = kWeights + 4;          // floats; the 4 more avoid bank conflicts between tokens
  static constexpr int kMaxStages = 12;
  static constexpr int kBarrierBytes = 2 * kMaxStages * 8;

  // The number of stages that fit into shared memory with the scales of a part of K.
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
  int weight, first, last;  // rows [first, last); none if there is no such tile, or if its rows are not computed
};

// Token tile number `slot`, in the order of all experts. Each lane counts the tiles of a range of experts.
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
  const int before = sum_through(own, lane) - own;
  TokenTile found = {0, 0, 0};
  const unsigned holder = __ballot_sync(~0u, slot >= before && slot < before + own);
  if (holder == 0) return found;
  if (holder >> lane & 1) {
    int left = slot - before;
    for (int e = begin; e < end; ++e) {
      const int first = p.offsets[e], last = p.offsets[e + 1], tiles = (last - first + kTokens - 1) / kTokens;
      if (left < tiles) {
        const int weight = weight_of(p, e);
        if (weight >= 0) found = {weight, first + left * kTokens, min(last, first + (left + 1) * kTokens)};
        break;
      }
      left -= tiles;
    }
  }
  const int from = __ffs(holder) - 1;
  return {__shfl_sync(~0u, found.weight, from), __shfl_sync(~0u, found.first, from), __shfl_sync(~0u, found.last, from)};
}

// Writes four neighbouring results; only the first `left` are inside the matrix.
template <class Out>
__device__ __forceinline__ void store_row(Out* out, const float4& x, int left) {
  if (left >= 4 && reinterpret_cast<uint64_t>(out) % (4 * sizeof(Out)) == 0) {
    if constexpr (std::is_same_v<Out, float>)
      *reinterpret_cast<float4*>(out) = x;
    else
      *reinterpret_cast<uint2*>(out) = {common::pack<__nv_bfloat16>(x.x, x.y), common::pack<__nv_bfloat16>(x.z, x.w)};
  } else {
    const float values[4] = {x.x, x.y, x.z, x.w};
    for (int i = 0; i < 4; ++i)
      if (i < left) out[i] = round_to<Out>(values[i]);
  }
}

template <int kTokens, class Out>
__global__ void __launch_bounds__(SwapAB<kTokens>::kThreads, SwapAB<kTokens>::kCtas)
    swap_ab_kernel(const __grid_constant__ Jobs jobs, int splits, int stages, bool static_weights, bool ascending, bool beside_previous) {
  using Config = SwapAB<kTokens>;
  extern __shared__ __align__(1024) uint8_t shared[];
  const uint32_t tiles = shared_address(shared);
  uint64_t* full = reinterpret_cast<uint64_t*>(shared + stages * Config::kStageBytes);
  uint64_t* empty = full + Config::kMaxStages;
  float* scales = reinterpret_cast<float*>(empty + Config::kMaxStages);  // [slices of this part][kTokens]

  const int rank = cluster_rank(), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int cluster = blockIdx.x / splits, number = 0;
  while (number + 1 < kMaxJobs && cluster >= jobs.job[number].clusters) cluster -= jobs.job[number++].clusters;
  const Job& job = jobs.job[number];
  const Product& p = job.product;
  const int slot = cluster / job.tiles, tile = cluster - slot * job.tiles;
  const int begin = p.slices * rank / splits, count = p.slices * (rank + 1) / splits - begin;
  // Each tile starts at a different slice, so that tiles of the same tokens do not all read them from L2 at once; `ascending`: all at the
  // first, which is the order of large_m.cuh.
  const int shift = count > 0 && !ascending ? tile % count : 0;
  const auto column_of = [&](int i) { return (begin + (i + shift < count ? i + shift : i + shift - count)) * kSlice; };
  const bool plain = static_weights && p.offsets == nullptr && p.sorted_token_ids == nullptr;
  const int prefetched = plain ? min(stages, count) : 0;  // slices whose weights are requested before pdl_wait
  const bool waits_late = plain && beside_previous;       // a is complete already; only the results must wait

  if (threadIdx.x == 0) {
    prefetch_map(&job.a_map);
    prefetch_map(&job.b_map);
    for (int s = 0; s < stages; ++s) {
      barrier_init(shared_address(&full[s]), 1);
      barrier_init(shared_address(&empty[s]), 8);
    }
    barrier_init_fence();
  }
  __syncthreads();
  if (warp == 8 && lane == 0) {
    for (int i = 0; i < prefetched; ++i) {
      const uint32_t barrier = shared_address(&full[i]);
      barrier_arrive_expect(barrier, Config::kStageBytes);
      copy_3d(tiles + i * Config::kStageBytes, &job.b_map, barrier, column_of(i), tile * kWeights, 0);
    }
  }
  __syncwarp();
  if (!waits_late) pdl_wait();

  const TokenTile token_tile = find_token_tile<kTokens>(p, slot);
  if (token_tile.first >= token_tile.last) return;  // the same for the whole cluster; never while copies are in flight

  if (warp == 8) {
    const int tokens = token_tile.last - token_tile.first;
    int token_id = 0;
    if (p.sorted_token_ids != nullptr && lane < tokens) token_id = p.sorted_token_ids[token_tile.first + lane];
    int stage = 0, phase = 0;
    for (int i = 0; i < count; ++i) {
      const int column = column_of(i);
      const uint32_t buffer = tiles + stage * Config::kStageBytes, barrier = shared_address(&full[stage]);
      if (lane == 0) {
        if (i >= prefetched) {
          barrier_wait(shared_address(&empty[stage]), phase ^ 1);
          barrier_arrive_expect(barrier, p.sorted_token_ids == nullptr ? Config::kStageBytes : kWeightBytes + tokens * kSlice);
          copy_3d(buffer, &job.b_map, barrier, column, tile * kWeights, token_tile.weight);
        }
        if (p.sorted_token_ids == nullptr) copy_2d(buffer + kWeightBytes, &job.a_map, barrier, column, token_tile.first);
      }
      if constexpr (kTokens <= 32) {
        // Rows past the tile's tokens keep their old bytes: each affects only its own column of the result.
        if (p.sorted_token_ids != nullptr) {
          __syncwarp();
          if (lane < tokens) copy_2d(buffer + kWeightBytes + lane * kSlice, &job.a_map, barrier, column, token_id);
        }
      }
      if (++stage == stages) stage = 0, phase ^= 1;
    }
    __syncwarp();
    if (splits > 1) {
      cluster_sync();
      cluster_sync();
    }
    return;
  }

  // The products of both scales for all slices of this part, loaded while the first tiles arrive. kLanes threads serve one token.
  constexpr int kLanes = 256 / kTokens;
  {
    const int token = threadIdx.x / kLanes;
    const bool inside = token_tile.first + token < token_tile.last;
    const int row = token_tile.first + (inside ? token : 0);
    const float* a_scale = p.a_scale + (p.sorted_token_ids == nullptr ? row : p.sorted_token_ids[row]) * p.a_scale_stride + begin;
    const float* b_scale = p.b_scale + token_tile.weight * p.b_scale_expert_stride + tile * p.b_scale_stride + begin;
#pragma unroll 8
    for (int i = threadIdx.x % kLanes; i < count; i += kLanes)
      scales[i * kTokens + token] = inside ? __fmul_rn(__ldg(a_scale + i), __ldg(b_scale + i)) : 0.0f;
  }
  named_sync(1, 256);

  float total[kTokens / 2] = {}, part[kTokens / 2];
  int stage = 0, phase = 0;
  for (int i = 0; i < count; ++i) {
    const uint32_t buffer = tiles + stage * Config::kStageBytes;
    barrier_wait(shared_address(&full[stage]), phase);
    multiply_words<kTokens>(part, Tile::rows(buffer + warp / 4 * (kWeightBytes / 2)).low, Tile::rows(buffer + kWeightBytes).low);
    mma_wait<0>();
    common::hold(part);
    if (lane == 0) barrier_arrive(shared_address(&empty[stage]));
    const float* scale = scales + (i + shift < count ? i + shift : i + shift - count) * kTokens + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < kTokens / 8; ++j) {
      const float2 s = *reinterpret_cast<const float2*>(scale + 8 * j);
#pragma unroll
      for (int x = 0; x < 4; ++x) total[4 * j + x] = __fmaf_rn(part[4 * j + x], x % 2 == 0 ? s.x : s.y, total[4 * j + x]);
    }
    if (++stage == stages) stage = 0, phase ^= 1;
  }

  pdl_launch_dependents();  // not earlier: the next kernel's CTAs would take bandwidth and multiprocessors from this one
  if (waits_late) pdl_wait();
  // The sums go to shared memory in place of the tiles, as [token][weight row]; then each warp adds the parts of one token.
  named_sync(1, 256);
  float* sums = reinterpret_cast<float*>(shared);
  {
    float* own = sums + lane % 4 * 2 * Config::kPitch + warp * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < kTokens / 8; ++j) {
      float* at = own + 8 * j * Config::kPitch;
      at[0] = total[4 * j];
      at[Config::kPitch] = total[4 * j + 1];
      at[8] = total[4 * j + 2];
      at[Config::kPitch + 8] = total[4 * j + 3];
    }
  }
  if (splits > 1)
    cluster_sync();
  else
    named_sync(1, 256);
  const int tokens = token_tile.last - token_tile.first, column = tile * kWeights + lane * 4;
  Out* out = static_cast<Out*>(p.out) + int64_t(token_tile.first) * p.n + column;
  const uint32_t local = shared_address(sums) + lane * 16;
  if (splits == 1) {
#pragma unroll
    for (int x = 0; x < kTokens / 8; ++x) {
      const int token = warp + 8 * x;
      const float4 sum = *reinterpret_cast<const float4*>(sums + token * Config::kPitch + lane * 4);
      if (token < tokens) store_row(out + int64_t(token) * p.n, sum, p.n - column);
    }
    return;
  }
#pragma unroll 2
  for (int token = warp * splits + rank; token < tokens; token += 8 * splits) {
    float4 parts[8];
#pragma unroll
    for (int s = 0; s < 8; ++s)
      if (s < splits)
        asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(parts[s].x), "=f"(parts[s].y), "=f"(parts[s].z), "=f"(parts[s].w)
                     : "r"(peer_address(local + token * (Config::kPitch * 4), s)));
    float4 sum = parts[0];
#pragma unroll
    for (int s = 1; s < 8; ++s)
      if (s < splits) sum.x += parts[s].x, sum.y += parts[s].y, sum.z += parts[s].z, sum.w += parts[s].w;
    store_row(out + int64_t(token) * p.n, sum, p.n - column);
  }
  __syncwarp();  // the barrier needs converged warps, and only some lanes have stored
  // No CTA exits while another reads its sums. The barrier is relaxed: it need not wait until the results are written.
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

}  // namespace gemm
