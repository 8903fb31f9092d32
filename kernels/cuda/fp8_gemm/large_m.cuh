// The kernel for large M: tiles of 128 tokens x 128 rows of weights, on persistent CTAs in pairs. A pair computes two neighbouring weight
// tiles of one token tile. Each CTA copies half of the tokens to both, which saves a quarter of the reads from L2.
//
// Shared memory bounds its speed: for each slice, copies and MMAs write and read 80 KB, which takes 640 cycles at 128 bytes each, while
// the MMAs need 512. Reading the scales of a in their own layout, one float from each of 128 rows, would take a cycle for each row, so
// they are transposed beforehand.
#pragma once

#include "product.cuh"

namespace gemm {

constexpr int kTile = 128;  // tokens
constexpr int kPanel = 8;   // token tiles that use the same weights from L2 before the next weights are read
constexpr int kScaleBox = kTile + 4;   // the TMA starts at multiples of 16 bytes, but an expert starts at any row
constexpr int kScalePitch = 160;       // floats; the TMA writes to multiples of 128 bytes
constexpr int kStages = 6;
constexpr int kHalf = 64;           // columns that a warp stages and writes at once
constexpr int kPitch = kHalf + 8;   // bf16 elements of a staged row; the 8 more avoid bank conflicts

struct LargeM {
  static constexpr int kThreads = 384;  // one producer warpgroup, two math warpgroups
  uint8_t tokens[kStages][kTile * kSlice];
  uint8_t weights[kStages][kWeightBytes];
  uint8_t out[8][16 * kPitch * 2];
  alignas(128) float scales[kStages][kScalePitch];
  uint64_t full[kStages], empty[kStages];
};

// The persistent tile scheduler. The order of tiles is: expert, panel of token tiles, pair of weight tiles, token tile. Every warp keeps
// its own scheduler.
struct TileScheduler {
  int pairs, expert = -1, tiles = 0;  // tiles: of tokens, of this expert
  int64_t before = 0;                 // tiles x pairs of the earlier experts
  int start = 0, end = 0;             // rows of this expert

  __device__ __forceinline__ TileScheduler(const Product& p) : pairs((p.n + 2 * kWeights - 1) / (2 * kWeights)) {}
  // Finds tile number `index`; returns false past the last. Successive calls must not decrease `index`.
  __device__ __forceinline__ bool find(const Product& p, int64_t index, int& first, int& pair) {
    while (expert < 0 || index >= before + int64_t(tiles) * pairs) {
      if (expert >= 0) before += int64_t(tiles) * pairs;
      if (++expert >= p.experts) return false;
      start = p.offsets == nullptr ? 0 : p.offsets[expert];
      end = p.offsets == nullptr ? p.rows : p.offsets[expert + 1];
      tiles = (end - start + kTile - 1) / kTile;
    }
    const int local = static_cast<int>(index - before), panel = local / (kPanel * pairs);
    const int height = min(kPanel, tiles - panel * kPanel), within = local - panel * kPanel * pairs;
    first = start + (panel * kPanel + within % height) * kTile;
    pair = within / height;
    return true;
  }
};

// a_scale [rows, slices] -> [slices, pitch], so that the scales of a tile and a slice are contiguous.
__global__ void transpose_scales_kernel(const float* a_scale, int64_t stride, int rows, int slices, float* out, int pitch) {
  __shared__ float tile[32][33];
  pdl_launch_dependents();
  pdl_wait();
  const int x = threadIdx.x % 32, row = blockIdx.x * 32, slice = blockIdx.y * 32;
  for (int y = threadIdx.x / 32; y < 32; y += 8)
    if (row + y < rows && slice + x < slices) tile[y][x] = a_scale[(row + y) * stride + slice + x];
  __syncthreads();
  for (int y = threadIdx.x / 32; y < 32; y += 8)
    if (row + x < rows && slice + y < slices) out[int64_t(slice + y) * pitch + row + x] = tile[x][y];
}

template <class Out>
__global__ void __launch_bounds__(LargeM::kThreads, 1)
    large_m_kernel(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
                       const __grid_constant__ CUtensorMap scale_map, const __grid_constant__ Product p) {
  extern __shared__ __align__(1024) uint8_t shared[];
  LargeM& s = *reinterpret_cast<LargeM*>(shared);
  const int rank = cluster_rank(), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    prefetch_map(&a_map);
    prefetch_map(&b_map);
    for (int i = 0; i < kStages; ++i) {
      barrier_init(shared_address(&s.full[i]), 1);
      barrier_init(shared_address(&s.empty[i]), 16);  // the math warps of both CTAs
    }
    barrier_init_fence();
  }
  cluster_sync();
  pdl_wait();

  const int cluster = blockIdx.x / 2, clusters = gridDim.x / 2;
  TileScheduler scheduler(p);
  int first, pair, stage = 0, phase = 0, release = 0;

  if (warp < 4) {
    common::shrink_registers<40>();
    if (warp == 0 && lane == 0) {
      for (int64_t index = cluster; scheduler.find(p, index, first, pair); index += clusters) {
        for (int i = 0; i < p.slices; ++i) {
          const uint32_t barrier = shared_address(&s.full[stage]);
          barrier_wait(shared_address(&s.empty[stage]), phase ^ 1);
          barrier_arrive_expect(barrier, kTile * kSlice + kWeightBytes + kScaleBox * 4);
          copy_2d_to_pair(shared_address(s.tokens[stage]) + rank * (kTile / 2 * kSlice), &a_map, barrier, i * kSlice,
                     first + rank * (kTile / 2));
          copy_3d(shared_address(s.weights[stage]), &b_map, barrier, i * kSlice, (2 * pair + rank) * kWeights, scheduler.expert);
          copy_2d(shared_address(s.scales[stage]), &scale_map, barrier, first / 4 * 4, i);
          if (++stage == kStages) stage = 0, phase ^= 1;
        }
      }
    }
    __syncwarp();
  } else {
    common::grow_registers<232>();
    const int group = warp / 4 - 1, row = group * 64 + warp % 4 * 16;  // row: the first of this warp in the tile
    const uint32_t release_to = peer_address(shared_address(s.empty), lane % 2);  // two lanes signal the two CTAs
    for (int64_t index = cluster; scheduler.find(p, index, first, pair); index += clusters) {
      const int column = (2 * pair + rank) * kWeights;
      const float* b_scale =
          p.b_scale + scheduler.expert * p.b_scale_expert_stride + min(column, p.n - 1) / kWeights * p.b_scale_stride;
      float next_b = __ldg(b_scale);

      float total[kWeights / 2], part[2][kWeights / 2], scale[2][2];
#pragma unroll
      for (float& x : total) x = 0.0f;
      // The MMAs of the next slice run while the sums of this slice are scaled and added.
      const auto start_slice = [&](float(&d)[kWeights / 2], float(&own)[2]) {
        barrier_wait(shared_address(&s.full[stage]), phase);
        multiply_slice<kWeights>(d, shared_address(s.tokens[stage]) + group * (64 * kSlice), shared_address(s.weights[stage]));
        own[0] = s.scales[stage][first % 4 + row + lane / 4];
        own[1] = s.scales[stage][first % 4 + row + lane / 4 + 8];
        if (++stage == kStages) stage = 0, phase ^= 1;
      };
      const auto add_slice = [&](float(&d)[kWeights / 2], const float(&own)[2], int i) {
        common::hold(d);
        __syncwarp();  // every lane has read its scales, which are in the same stage
        if (lane < 2) barrier_arrive_remote(release_to + release * 8);
        if (++release == kStages) release = 0;
        const float s0 = own[0] * next_b, s1 = own[1] * next_b;
        next_b = __ldg(b_scale + min(i + 1, p.slices - 1));
#pragma unroll
        for (int j = 0; j < kWeights / 8; ++j) {
          total[4 * j] += d[4 * j] * s0;
          total[4 * j + 1] += d[4 * j + 1] * s0;
          total[4 * j + 2] += d[4 * j + 2] * s1;
          total[4 * j + 3] += d[4 * j + 3] * s1;
        }
      };
      start_slice(part[0], scale[0]);
      int i = 0;
      for (; i + 2 < p.slices; i += 2) {
        start_slice(part[1], scale[1]);
        mma_wait<1>();
        add_slice(part[0], scale[0], i);
        start_slice(part[0], scale[0]);
        mma_wait<1>();
        add_slice(part[1], scale[1], i + 1);
      }
      if (i + 2 == p.slices) {
        start_slice(part[1], scale[1]);
        mma_wait<1>();
        add_slice(part[0], scale[0], i);
        mma_wait<0>();
        add_slice(part[1], scale[1], i + 1);
      } else {
        mma_wait<0>();
        add_slice(part[0], scale[0], i);
      }

      Out* out = static_cast<Out*>(p.out);
      if (std::is_same_v<Out, float> || p.n % 8 != 0) {
#pragma unroll
        for (int j = 0; j < kWeights / 2; ++j) {
          const int r = first + row + lane / 4 + j / 2 % 2 * 8, c = column + j / 4 * 8 + lane % 4 * 2 + j % 2;
          if (r < scheduler.end && c < p.n) out[int64_t(r) * p.n + c] = round_to<Out>(total[j]);
        }
      } else {
        // Each warp stages its 16 rows in its own shared memory, half of the columns at a time, so that it writes whole lines.
        const uint8_t* staged = s.out[warp - 4];
        const uint32_t at = shared_address(staged) + (lane % 16 * kPitch + lane / 16 * 8) * 2;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const float* x = total + 32 * half + 8 * j;
            common::store_matrices(at + j * 32, common::pack<__nv_bfloat16>(x[0], x[1]), common::pack<__nv_bfloat16>(x[2], x[3]),
                                common::pack<__nv_bfloat16>(x[4], x[5]), common::pack<__nv_bfloat16>(x[6], x[7]));
          }
          __syncwarp();
          const int c = column + half * kHalf + lane % 8 * 8;
#pragma unroll
          for (int x = 0; x < 4; ++x) {
            const int r = x * 4 + lane / 8, absolute = first + row + r;
            const uint4 line = *reinterpret_cast<const uint4*>(staged + (r * kPitch + lane % 8 * 8) * 2);
            if (absolute < scheduler.end && c < p.n) *reinterpret_cast<uint4*>(out + int64_t(absolute) * p.n + c) = line;
          }
          __syncwarp();
        }
      }
    }
  }
  __syncwarp();
  pdl_launch_dependents();
  cluster_sync();  // no CTA exits while another still signals its barriers
}

}  // namespace gemm
