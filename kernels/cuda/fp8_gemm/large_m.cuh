// The kernel for many rows: persistent CTAs, single or in pairs, and tiles of kRows tokens x kColumns rows of weights. A math warpgroup has
// 64 tokens of a tile, and kWaves parts of kN columns one after the other. A pair of CTAs shares one operand by multicast.
//
// The sum of one slice is scaled and added to fp32 registers (promotion). While a warpgroup does so, the tensor cores have the MMAs of
// another warpgroup; where registers suffice (kOverlaps) also its own of the next part.
//
// K is never split, and its slices are added in ascending order by one fp32 multiplication of scales and one fused addition each: an element
// of the result has the same bits in every tile and among any other rows.
#pragma once

#include "large_tile.cuh"

namespace gemm {

template <class Config, class Out>
__global__ void __launch_bounds__(Config::kThreads, 1)
    large_m_kernel(const __grid_constant__ TokenMaps<Config> a_maps, const __grid_constant__ CUtensorMap b_map,
                   const __grid_constant__ CUtensorMap out_map, const __grid_constant__ Product p, const bool vector_scales,
                   const bool bulk_stores) {
  constexpr int kGroups = Config::kGroups, kWaves = Config::kWaves, kN = Config::kN;
  extern __shared__ __align__(1024) uint8_t shared[];
  typename Config::Rest& s = *reinterpret_cast<typename Config::Rest*>(shared + Config::kStages * Config::kStageBytes);
  const uint32_t stages = shared_address(shared);

  const int rank = Config::kCluster > 1 ? cluster_rank() : 0, warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    prefetch_map(&a_maps.maps[0]);
    prefetch_map(&b_map);
    for (int i = 0; i < Config::kStages; ++i) {
      barrier_init(shared_address(&s.full[i]), 1);
      barrier_init(shared_address(&s.empty[i]), Config::kCluster * 4 * kGroups);  // the math warps of all CTAs
    }
    for (int i = 0; i < Config::kChunks; ++i) {
      barrier_init(shared_address(&s.chunks_full[i]), kScaleThreads + 1);
      barrier_init(shared_address(&s.chunks_empty[i]), 4 * kGroups);
    }
    if constexpr (Config::kShares == Shares::kTokens)
      for (uint64_t& each : s.claims_full) barrier_init(shared_address(&each), 1);
    barrier_init_fence();
  }
  if constexpr (Config::kCluster > 1)
    cluster_sync();
  else
    __syncthreads();
  pdl_wait();

  if (warp < 4) {
    if constexpr (Config::kMovesRegisters) common::shrink_registers<Config::kProducerRegisters>();
    if (warp == 0 && lane == 0) {
      copy_tiles<Config>(a_maps, b_map, p, rank, stages, s);
    } else if (warp > 0) {
      copy_scales<Config>(p, vector_scales, rank, s);
    }
    __syncwarp();
  } else {
    if constexpr (Config::kMovesRegisters) common::grow_registers<Config::kMathRegisters>();
    // The first row of this warp in the tile, and the first column of its warpgroup.
    const int group = (warp / 4 - 1) % Config::kRowGroups, row = group * 64 + warp % 4 * 16;
    const int begin = (warp / 4 - 1) / Config::kRowGroups * Config::kWarpColumns;
    const uint32_t release_to = peer_address(shared_address(s.empty), lane % 2);  // two lanes signal the two CTAs
    // Low words of the operands' descriptors in stage 0.
    const uint32_t token_word = common::Tile::rows(stages + group * (64 * kSlice)).low;
    const uint32_t weight_word = common::Tile::rows(stages + (Config::kRows + begin) * kSlice).low;
    const uint8_t* staged = s.out[warp - 4];
    int stage = 0, phase = 0, chunk = 0, chunk_phase = 0;
    int held = 0;  // the stage that the MMAs in flight read
    const auto wait_full = [&] { barrier_wait(shared_address(&s.full[stage]), phase); };
    const auto next_stage = [&] {
      if (++stage == Config::kStages) stage = 0, phase ^= 1;
    };
    const auto release = [&] {
      __syncwarp();
      if constexpr (Config::kCluster > 1) {
        if (lane < 2) barrier_arrive_remote(release_to + held * 8);
      } else if (lane == 0) {
        barrier_arrive(shared_address(&s.empty[held]));
      }
      if (++held == Config::kStages) held = 0;
    };
    const auto wait_chunk = [&] { barrier_wait(shared_address(&s.chunks_full[chunk]), chunk_phase); };
    const auto release_chunk = [&] {
      __syncwarp();
      if (lane == 0) barrier_arrive(shared_address(&s.chunks_empty[chunk]));
      if (++chunk == Config::kChunks) chunk = 0, chunk_phase ^= 1;
    };
    for (;;) {
      wait_chunk();
      const int4 header = s.chunks[chunk].tile;
      if (header.w == 0) break;
      const int first = header.x + row, column = header.y + begin, end = header.z;  // of this warp
      if (header.x + group * 64 >= end || column >= p.n) {  // this warpgroup has no valid results
        for (int i = 0; i < p.slices; ++i) {
          if (i > 0 && i % kScaleSlices == 0) wait_chunk();
          if (i % kScaleSlices == kScaleSlices - 1 || i == p.slices - 1) release_chunk();
          wait_full();
          next_stage();
          release();
        }
        continue;
      }
      float total[kWaves][kN / 2];
#pragma unroll
      for (int w = 0; w < kWaves; ++w)
#pragma unroll
        for (float& x : total[w]) x = 0.0f;

      const auto multiply = [&](float(&d)[kN / 2], int w) {
        const uint32_t offset = stage * (Config::kStageBytes / 16);
        multiply_words<kN>(d, token_word + offset, weight_word + offset + w * (kN * kSlice / 16));
      };
      // The scales of a slice of the chunk: of this thread's two rows, and of the block where each wave begins and of the next one.
      constexpr int kTouched = Config::kBlocks == 1 || Config::kMostOffset == 0 && kN == kWeights ? 1 : 2;
      struct Scales {
        float a[2], b[kWaves][kTouched];
      };
      const auto load_scales = [&](Scales& to, int slice) {
        const typename Config::Chunk& from = s.chunks[chunk];
#pragma unroll
        for (int x = 0; x < 2; ++x) to.a[x] = from.tokens[slice / 4][row + lane / 4 + 8 * x][slice % 4];
#pragma unroll
        for (int w = 0; w < kWaves; ++w) {
          const int block = Config::kMostOffset == 0 ? (begin + w * kN) / kWeights : (header.y % kWeights + begin + w * kN) / kWeights;
#pragma unroll
          for (int x = 0; x < kTouched; ++x) to.b[w][x] = from.weights[min(block + x, Config::kBlocks - 1)][slice];
        }
      };
      const auto promote = [&](const float(&d)[kN / 2], const Scales& scales, int w) {
        const int first_block = kWeights - (column + w * kN) % kWeights;  // columns of the wave in its first block
#pragma unroll
        for (int j = 0; j < kN / 8; ++j) {
          const float b = kTouched == 1 || j * 8 / Config::kStep * Config::kStep < first_block ? scales.b[w][0] : scales.b[w][kTouched - 1];
          const float s0 = __fmul_rn(scales.a[0], b), s1 = __fmul_rn(scales.a[1], b);
#pragma unroll
          for (int x = 0; x < 4; ++x) total[w][4 * j + x] = __fmaf_rn(d[4 * j + x], x < 2 ? s0 : s1, total[w][4 * j + x]);
        }
      };

      if constexpr (Config::kAwaitsWhileAdding) {
        Scales scales;
        const auto begin_slice = [&](int x) {
          load_scales(scales, x);
          wait_full();
        };
        const auto add_slice = [&] {
          float part[kN / 2];
#pragma unroll
          for (int w = 0; w < kWaves; ++w) {
            multiply(part, w);
            if (w == kWaves - 1) next_stage();
            mma_wait<0>();
            common::hold(part);
            if (w == kWaves - 1) release();
            promote(part, scales, w);
          }
        };
        const auto add_slices = [&](auto count) {
#pragma unroll
          for (int x = 0; x < decltype(count)::value; ++x) {
            if (x > 0) begin_slice(x);
            add_slice();
          }
        };
        begin_slice(0);
        int left = p.slices;
        while (left >= kScaleSlices) {
          add_slices(std::integral_constant<int, kScaleSlices>());
          release_chunk();
          left -= kScaleSlices;
          if (left > 0) {
            wait_chunk();
            begin_slice(0);
          }
        }
        if (left > 0) {
          if (left == kScaleSlices / 2) {
            add_slices(std::integral_constant<int, kScaleSlices / 2>());
          } else {
#pragma unroll 1
            for (int x = 0; x < left; ++x) {
              if (x > 0) begin_slice(x);
              add_slice();
            }
          }
          release_chunk();
        }
      } else {
        wait_full();
        for (int base = 0; base < p.slices; base += kScaleSlices) {
          if (base > 0) wait_chunk();
          if (Config::kOverlaps && p.slices - base >= kScaleSlices) {
            float parts[2][kN / 2];
            Scales scales[2];
#pragma unroll
            for (int i = 0; i <= kScaleSlices * kWaves; ++i) {
              if (i < kScaleSlices * kWaves) {
                const int x = i / kWaves, w = i % kWaves;
                if (x > 0 && w == 0) wait_full();
                multiply(parts[i % 2], w);
                if (w == 0) load_scales(scales[x % 2], x);
                if (w == kWaves - 1) next_stage();
              }
              if (i == 0) continue;
              if (i < kScaleSlices * kWaves)
                mma_wait<1>();
              else
                mma_wait<0>();
              const int x = (i - 1) / kWaves, w = (i - 1) % kWaves;
              common::hold(parts[(i - 1) % 2]);
              if (w == kWaves - 1) release();
              promote(parts[(i - 1) % 2], scales[x % 2], w);
            }
            if (p.slices - base > kScaleSlices) wait_full();
          } else {
            float part[kN / 2];
            Scales scales;
#pragma unroll
            for (int x = 0; x < kScaleSlices; ++x) {
              const int left = p.slices - base - x;
              if (left <= 0) break;
#pragma unroll
              for (int w = 0; w < kWaves; ++w) {
                multiply(part, w);
                if (w == 0) load_scales(scales, x);
                if (w == kWaves - 1) {
                  next_stage();
                  if (left > 1) wait_full();
                }
                mma_wait<0>();
                common::hold(part);
                if (w == kWaves - 1) release();
                promote(part, scales, w);
              }
            }
          }
          release_chunk();
        }
      }

      store_results<Config, Out>(total, out_map, p, bulk_stores, staged, first, end, column);
    }
    if (lane == 0) wait_bulk_stores();
  }
  __syncwarp();
  pdl_launch_dependents();
  if constexpr (Config::kCluster > 1) cluster_sync();  // no CTA exits while another still signals its barriers
}

}  // namespace gemm
