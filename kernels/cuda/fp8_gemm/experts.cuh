// The kernel for experts of some hundred rows, on persistent CTAs: 128 rows of weights are the M dimension of the MMAs, and all rows of an
// expert, up to 192, their N dimension, so that each weight is read once and few MMAs are spent on padding. The CTAs of a cluster have
// neighbouring rows of weights and share the tokens by multicast, because the traffic between the two halves of L2 bounds the speed.
#pragma once

#include "large_m.cuh"

namespace gemm {

template <int kCluster_>
struct Experts {
  static constexpr int kCluster = kCluster_;
  static constexpr int kRows = 192, kColumns = kWeights, kGroups = 2;
  static constexpr bool kSharesTokens = true;
  static constexpr int kThreads = 128 * (1 + kGroups);
  static constexpr int kTokenBox = 32, kWeightBox = kWeights;
  static constexpr int kStageBytes = (kRows + kColumns) * kSlice;
  struct Rest {
    uint8_t out[kGroups][kRows * 128];          // [token][64 rows of weights], pieces of 16 bytes swizzled by the token
    float scales[2][kScaleSlices][kRows];       // products of both scales
    uint64_t full[kMostStages], empty[kMostStages], scales_full[2], scales_empty[2];
  };
  static constexpr int kStages = std::min((kMostShared - int(sizeof(Rest))) / kStageBytes, kMostStages);
  static constexpr int kSharedBytes = kStages * kStageBytes + int(sizeof(Rest));
  static_assert(kStages >= 4);
};

// Stores four 8 x 8 matrices transposed: a row in shared memory is a column of a matrix.
__device__ __forceinline__ void store_matrices_transposed(uint32_t destination, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(destination), "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    experts_kernel(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map, const __grid_constant__ Product p,
                   const bool vector_scales) {
  extern __shared__ __align__(1024) uint8_t shared[];
  typename Config::Rest& s = *reinterpret_cast<typename Config::Rest*>(shared + Config::kStages * Config::kStageBytes);
  const uint32_t stages = shared_address(shared);
  constexpr int kScaleThreads = 96;  // the producer's warps 1 to 3

  const int rank = cluster_rank(), warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    prefetch_map(&a_map);
    prefetch_map(&b_map);
    for (int i = 0; i < Config::kStages; ++i) {
      barrier_init(shared_address(&s.full[i]), 1);
      barrier_init(shared_address(&s.empty[i]), Config::kCluster * 4 * Config::kGroups);  // the math warps of all CTAs
    }
    for (int i = 0; i < 2; ++i) {
      barrier_init(shared_address(&s.scales_full[i]), kScaleThreads);
      barrier_init(shared_address(&s.scales_empty[i]), 4 * Config::kGroups);
    }
    barrier_init_fence();
  }
  cluster_sync();
  pdl_wait();

  const int cluster = blockIdx.x / Config::kCluster, clusters = gridDim.x / Config::kCluster;
  TileScheduler<Config> tile;
  int stage = 0, phase = 0, chunk = 0, chunk_phase = 0;
  const auto next_stage = [&] {
    if (++stage == Config::kStages) stage = 0, phase ^= 1;
  };
  const auto next_chunk = [&] { chunk ^= 1, chunk_phase ^= chunk == 0; };

  if (warp < 4) {
    common::shrink_registers<40>();
    if (warp == 0 && lane == 0) {
      copy_tiles<Config>(a_map, b_map, p, stages, s.full, s.empty);
    } else if (warp > 0) {
      const int thread = threadIdx.x - 32, blocks = (p.n + kWeights - 1) / kWeights;
      for (int index = cluster; tile.find(p, index, rank); index += clusters) {
        const float* b_scale =
            p.b_scale + tile.expert * p.b_scale_expert_stride + min(tile.column / kWeights, blocks - 1) * p.b_scale_stride;
        const int tokens = min(Config::kRows, tile.end - tile.first);
        for (int i = 0; i < p.slices; i += kScaleSlices) {
          const int count = min(kScaleSlices, p.slices - i);
          barrier_wait(shared_address(&s.scales_empty[chunk]), chunk_phase ^ 1);
          for (int piece = thread; piece < 2 * tokens; piece += kScaleThreads) {
            const int row = piece / 2, part = piece % 2 * 4, left = count - part;
            const float* source = p.a_scale + (tile.first + row) * p.a_scale_stride + i + part;
            float scale[4] = {};
            if (vector_scales) {
              if (left > 0) *reinterpret_cast<float4*>(scale) = __ldg(reinterpret_cast<const float4*>(source));
            } else {
#pragma unroll
              for (int x = 0; x < 4; ++x)
                if (x < left) scale[x] = __ldg(source + x);
            }
#pragma unroll
            for (int x = 0; x < 4; ++x)
              if (x < left) s.scales[chunk][part + x][row] = __fmul_rn(scale[x], __ldg(b_scale + i + part + x));
          }
          barrier_arrive(shared_address(&s.scales_full[chunk]));
          next_chunk();
        }
      }
    }
    __syncwarp();
  } else {
    common::grow_registers<232>();
    const int group = warp / 4 - 1;
    const uint32_t release_to = peer_address(shared_address(s.empty), lane % Config::kCluster);  // a lane signals each CTA
    const uint32_t token_word = common::Tile::rows(stages).low;
    const uint32_t weight_word = common::Tile::rows(stages + (Config::kRows + group * 64) * kSlice).low;
    int held = 0;  // the stage that the MMAs in flight read
    for (int index = cluster; tile.find(p, index, rank); index += clusters) {
      const int tokens = min(Config::kRows, tile.end - tile.first), column = tile.column + group * 64;
      const auto wait_full = [&] { barrier_wait(shared_address(&s.full[stage]), phase); };
      const auto release = [&] {
        __syncwarp();
        if (lane < Config::kCluster) barrier_arrive_remote(release_to + held * 8);
        if (++held == Config::kStages) held = 0;
      };
      const auto wait_scales = [&](int i) {
        if (i % kScaleSlices == 0) barrier_wait(shared_address(&s.scales_full[chunk]), chunk_phase);
      };
      const auto release_scales = [&](int i) {
        if (i % kScaleSlices != kScaleSlices - 1 && i != p.slices - 1) return;
        __syncwarp();
        if (lane == 0) barrier_arrive(shared_address(&s.scales_empty[chunk]));
        next_chunk();
      };
      if (column >= p.n) {  // the second tile of the last pair
        for (int i = 0; i < p.slices; ++i) {
          wait_scales(i);
          release_scales(i);
          wait_full();
          release();
          next_stage();
        }
        continue;
      }
      // The product of this tile with `width` tokens, rounded up.
      const auto compute = [&](auto width) {
        constexpr int kN = decltype(width)::value;
        float total[kN / 2], part[kN / 2];
#pragma unroll
        for (float& x : total) x = 0.0f;
        wait_full();
        for (int i = 0; i < p.slices; ++i) {
          const uint32_t offset = stage * (Config::kStageBytes / 16);
          multiply_words<kN>(part, weight_word + offset, token_word + offset);
          wait_scales(i);
          next_stage();
          if (i + 1 < p.slices) wait_full();
          const float* scale = s.scales[chunk][i % kScaleSlices] + lane % 4 * 2;
          mma_wait<0>();
          common::hold(part);
          release();
#pragma unroll
          for (int j = 0; j < kN / 8; ++j) {
            const float2 own = *reinterpret_cast<const float2*>(scale + 8 * j);
#pragma unroll
            for (int x = 0; x < 4; ++x) total[4 * j + x] = __fmaf_rn(part[4 * j + x], x % 2 == 0 ? own.x : own.y, total[4 * j + x]);
          }
          release_scales(i);
        }
        // A warp has 16 of the 64 columns of the staged rows. Its lane l gives the address of a row of matrix l / 8.
        const uint32_t staged = shared_address(s.out[group]);
#pragma unroll
        for (int j = 0; j < kN / 8; j += 2) {
          const float* x = total + 4 * j;
          const int token = 8 * (j + lane / 16) + lane % 8, piece = warp % 4 * 2 + lane / 8 % 2;
          store_matrices_transposed(staged + token * 128 + ((piece ^ token % 8) << 4), common::pack<__nv_bfloat16>(x[0], x[1]),
                                    common::pack<__nv_bfloat16>(x[2], x[3]), common::pack<__nv_bfloat16>(x[4], x[5]),
                                    common::pack<__nv_bfloat16>(x[6], x[7]));
        }
      };
      named_sync(1 + group, 128);  // the previous results have been read
      if (tokens <= 32)
        compute(std::integral_constant<int, 32>());
      else if (tokens <= 64)
        compute(std::integral_constant<int, 64>());
      else if (tokens <= 96)
        compute(std::integral_constant<int, 96>());
      else if (tokens <= 112)
        compute(std::integral_constant<int, 112>());
      else if (tokens <= 128)
        compute(std::integral_constant<int, 128>());
      else if (tokens <= 144)
        compute(std::integral_constant<int, 144>());
      else if (tokens <= 160)
        compute(std::integral_constant<int, 160>());
      else
        compute(std::integral_constant<int, 192>());
      named_sync(1 + group, 128);
      __nv_bfloat16* out = static_cast<__nv_bfloat16*>(p.out) + int64_t(tile.first) * p.n;
      const int piece = threadIdx.x % 8, at = column + piece * 8;
      if (at < p.n)
        for (int token = threadIdx.x / 8 % 16; token < tokens; token += 16) {
          const uint8_t* from = s.out[group] + token * 128 + ((piece ^ token % 8) << 4);
          __nv_bfloat16* to = out + int64_t(token) * p.n + at;
          if (p.n % 8 == 0) {
            *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
          } else {
            for (int y = 0; y < min(8, p.n - at); ++y) to[y] = reinterpret_cast<const __nv_bfloat16*>(from)[y];
          }
        }
    }
  }
  __syncwarp();
  pdl_launch_dependents();
  cluster_sync();  // no CTA exits while another still signals its barriers
}

}  // namespace gemm
