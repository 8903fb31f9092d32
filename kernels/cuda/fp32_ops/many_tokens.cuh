// The products of products.cuh for many tokens: a CTA computes 64 rows of the weight for 128 or 32 tokens, with all columns.
#pragma once

#include "products.cuh"

namespace fp32_ops {

constexpr int kRowsOfCta = 64, kRowGroups = kRowsOfCta / kTileRows;
constexpr int kWeightPitch = 4 * kChain + 64, kTokenPitch = 2 * kChain + 32;  // bytes, so that the lanes of a load use all banks

// Two halves of the tokens, with kTileCount tiles each; four groups of rows.
template <int kTileCount>
struct Many {
  static constexpr int kTokens = 2 * kTileCount * kTileTokens, kStages = 3;
  static constexpr int kStageBytes = kRowsOfCta * kWeightPitch + kTokens * kTokenPitch, kBytes = kStages * kStageBytes;
};

template <int kTileCount>
__global__ void __launch_bounds__(kThreads, 1) fp32_many_products_kernel(Linear p) {
  using Shape = Many<kTileCount>;
  extern __shared__ __align__(16) char memory[];
  common::pdl_launch_dependents();
  const int row = blockIdx.y * kRowsOfCta, first = blockIdx.x * Shape::kTokens;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, chains = (p.width + kChain - 1) / kChain;
  common::pdl_wait();
  const auto load = [&](int chain) {
    if (chain < chains) {
      char* weights = memory + chain % Shape::kStages * Shape::kStageBytes;
      char* tokens = weights + kRowsOfCta * kWeightPitch;
#pragma unroll
      for (int i = threadIdx.x; i < kRowsOfCta * kChain / 4; i += kThreads) {
        const int r = i / (kChain / 4), at = i % (kChain / 4), c = chain * kChain + at * 4;
        const bool exists = row + r < p.rows && c < p.width;
        common::copy16<0>(common::shared_address(weights + r * kWeightPitch + at * 16),
                          p.weight + (exists ? int64_t(row + r) * p.width + c : 0), exists ? 16 : 0);
      }
#pragma unroll
      for (int i = threadIdx.x; i < Shape::kTokens * kChain / 8; i += kThreads) {
        const int t = i / (kChain / 8), at = i % (kChain / 8), c = chain * kChain + at * 8;
        const bool exists = first + t < p.tokens && c < p.width;
        common::copy16<0>(common::shared_address(tokens + t * kTokenPitch + at * 16),
                          static_cast<const __nv_bfloat16*>(p.x) + (exists ? (first + t) * p.stride + c : 0), exists ? 16 : 0);
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  float whole[kTileCount][4] = {}, total[kTileCount][4] = {};  // of all columns; of up to 1024
  load(0), load(1);
  for (int chain = 0; chain < chains; ++chain) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();  // this chain's columns are there, and all warps are done with the stage that is loaded next
    load(chain + 2);
    const char* weights = memory + chain % Shape::kStages * Shape::kStageBytes + (warp % kRowGroups * kTileRows + lane / 4) * kWeightPitch +
                          lane % 4 * 16;
    const char* tokens = memory + chain % Shape::kStages * Shape::kStageBytes + kRowsOfCta * kWeightPitch +
                         (warp / kRowGroups * kTileCount * kTileTokens + lane / 4) * kTokenPitch + lane % 4 * 8;
    float sums[kTileCount][3][4] = {};
#pragma unroll
    for (int i = 0; i < kSlices; ++i) {
      uint32_t rows[3][4];
      split_rows(*reinterpret_cast<const float4*>(weights + 64 * i), *reinterpret_cast<const float4*>(weights + 8 * kWeightPitch + 64 * i),
                 rows);
#pragma unroll
      for (int tile = 0; tile < kTileCount; ++tile) {
        const uint2 x = *reinterpret_cast<const uint2*>(tokens + tile * kTileTokens * kTokenPitch + 32 * i);
#pragma unroll
        for (int part = 2; part >= 0; --part) mma_bf16(sums[tile][part], rows[part], x);
      }
    }
    const bool last = chain % kChains == kChains - 1 || chain == chains - 1;
#pragma unroll
    for (int tile = 0; tile < kTileCount; ++tile)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        total[tile][j] += sum_of_parts(sums[tile], j);
        if (last) whole[tile][j] += total[tile][j], total[tile][j] = 0.0f;
      }
  }
#pragma unroll
  for (int tile = 0; tile < kTileCount; ++tile)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int r = row + warp % kRowGroups * kTileRows + lane / 4 + 8 * (j / 2);
      const int token = first + (warp / kRowGroups * kTileCount + tile) * kTileTokens + lane % 4 * 2 + j % 2;
      if (r < p.rows && token < p.tokens) p.out[int64_t(token) * p.rows + r] = whole[tile][j] * p.scale;
    }
}

}  // namespace fp32_ops
