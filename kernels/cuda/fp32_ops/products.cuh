// A linear projection of bf16 tokens with fp32 weights on the tensor cores, as exact as one in fp32.
//
// An fp32 weight is the sum of three bf16 numbers: the rounded weight, the rounded rest, and the rest of that. Products of bf16 numbers are
// exact in fp32, so three MMAs take the place of one in fp32. Their accumulators truncate, so a chain of MMAs is short: 128 columns, with
// chains of their own for the small parts. A token that is not finite makes its results NaN.
//
// The order of a sum depends only on the number of columns, so a token's results do not depend on the other tokens, nor on which of the two
// kernels computes them: 8 slices of 16 columns in a chain, the three parts from the smallest on, 8 chains, and then these sums of 1024
// columns, each in ascending order.
#pragma once

#include <cuda_bf16.h>

#include "../common/cluster.cuh"
#include "kernels.cuh"

namespace fp32_ops {

constexpr int kSlices = 8, kChain = 16 * kSlices;          // columns of a chain
constexpr int kChains = 8, kColumnsOfCta = kChain * kChains;  // of a sum, which is a CTA's of few tokens
constexpr int kTileRows = 16, kTileTokens = 8, kTileSize = kTileRows * kTileTokens;  // of an MMA
static_assert(kChains == kWarps);

// Two weights -> their three parts as pairs of bf16.
__device__ __forceinline__ void split(float low, float high, uint32_t& first, uint32_t& second, uint32_t& third) {
  first = common::pack<__nv_bfloat16>(low, high);
  low -= __uint_as_float(first << 16), high -= __uint_as_float(first & 0xFFFF0000u);
  second = common::pack<__nv_bfloat16>(low, high);
  low -= __uint_as_float(second << 16), high -= __uint_as_float(second & 0xFFFF0000u);
  third = common::pack<__nv_bfloat16>(low, high);
}
// One slice of two rows, 8 apart, as the operand of an MMA. Lane 4g + t holds the columns 4t to 4t + 3 of rows g and g + 8: the order of
// columns within an MMA is free, so that a load is 16 bytes of a weight and 8 of a token.
__device__ __forceinline__ void split_rows(const float4& upper, const float4& lower, uint32_t (&parts)[3][4]) {
  split(upper.x, upper.y, parts[0][0], parts[1][0], parts[2][0]);
  split(lower.x, lower.y, parts[0][1], parts[1][1], parts[2][1]);
  split(upper.z, upper.w, parts[0][2], parts[1][2], parts[2][2]);
  split(lower.z, lower.w, parts[0][3], parts[1][3], parts[2][3]);
}
// The sum of a chain, from its three parts.
__device__ __forceinline__ float sum_of_parts(const float (&sums)[3][4], int i) { return (sums[2][i] + sums[1][i]) + sums[0][i]; }

__host__ __device__ __forceinline__ int cluster_of(const Linear& p) { return (p.width + kColumnsOfCta - 1) / kColumnsOfCta; }
inline int ctas_of(const Linear& p) { return (p.rows + kTileRows - 1) / kTileRows * cluster_of(p); }

// ---- few tokens: a cluster computes 16 rows of the weight for up to 64 tokens, each of its CTAs 1024 columns, each warp a chain ----

constexpr int kTiles = 8, kBatch = kTiles * kTileTokens;
constexpr int kPitch = 2 * kColumnsOfCta + 32;  // bytes between tokens, so that the lanes of a load use all banks

// In dynamic shared memory; the tokens follow.
struct FewMemory {
  float4 parts[kWarps][kTiles][kTileSize / 4];  // sums of the warps, in the order of lanes
  float4 pushed[16][kTileSize / 4];             // of the tiles that this CTA finishes, by tile and rank
  uint64_t tokens_copied, sums_pushed;
};
inline int few_memory(const Linear& p) {
  return static_cast<int>(sizeof(FewMemory)) + (p.tokens < kBatch ? (p.tokens + kTileTokens - 1) / kTileTokens * kTileTokens : kBatch) * kPitch;
}

// The part of a thread in the products of few tokens. `load_weights` and `prepare_barriers` may run before the tokens are there.
struct Few {
  const Linear& p;
  FewMemory& s;
  const int rank, cluster, row, first, column, tiles, warp, lane;
  float4 raw[kSlices][2];

  __device__ __forceinline__ Few(const Linear& problem, void* memory, int cta, int batch)
      : p(problem), s(*static_cast<FewMemory*>(memory)), rank(static_cast<int>(common::cluster_rank())), cluster(cluster_of(problem)),
        row(cta / cluster * kTileRows), first(batch * kBatch), column(rank * kColumnsOfCta + threadIdx.x / 32 * kChain),
        tiles((min(kBatch, problem.tokens - first) + kTileTokens - 1) / kTileTokens), warp(threadIdx.x / 32), lane(threadIdx.x % 32) {}

  __device__ __forceinline__ void load_weights() {
#pragma unroll
    for (int i = 0; i < kSlices; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int r = row + lane / 4 + 8 * half, c = column + 16 * i + lane % 4 * 4;
        raw[i][half] = c < p.width && r < p.rows ? load4(p.weight + int64_t(r) * p.width + c) : float4{};
      }
  }
  __device__ __forceinline__ void prepare_barriers() {
    if (threadIdx.x == 0) {
      const uint32_t copied = common::shared_address(&s.tokens_copied), pushed = common::shared_address(&s.sums_pushed);
      common::barrier_init(copied, 1), common::barrier_init(pushed, 1);
      common::barrier_arrive_expect(pushed, own_tiles() * cluster * kTileSize * 4);
    }
    common::cluster_sync_barriers();
  }
  // Tile i is finished by the CTA i % cluster.
  __device__ __forceinline__ int own_tiles() const { return tiles > rank ? (tiles - rank - 1) / cluster + 1 : 0; }

  __device__ __forceinline__ void finish() {
    char* tokens = reinterpret_cast<char*>(&s + 1);
    const uint32_t copied = common::shared_address(&s.tokens_copied), pushed = common::shared_address(&s.sums_pushed);
    const int count = min(kBatch, p.tokens - first), columns = min(kColumnsOfCta, p.width - rank * kColumnsOfCta);
    if (threadIdx.x == 0) common::barrier_arrive_expect(copied, count * columns * 2);
    if (static_cast<int>(threadIdx.x) < count)
      common::copy_bulk(common::shared_address(tokens + threadIdx.x * kPitch),
                        static_cast<const __nv_bfloat16*>(p.x) + (first + threadIdx.x) * p.stride + rank * kColumnsOfCta, columns * 2, copied);
    uint32_t weights[kSlices][3][4];  // split while the tokens are on their way
#pragma unroll
    for (int i = 0; i < kSlices; ++i) split_rows(raw[i][0], raw[i][1], weights[i]);
    common::barrier_wait(copied, 0);
    for (int tile = 0; tile < tiles; ++tile) {
      const char* source = tokens + (tile * kTileTokens + lane / 4) * kPitch + warp * kChain * 2 + lane % 4 * 8;
      float sums[3][4] = {};
#pragma unroll
      for (int i = 0; i < kSlices; ++i) {
        const bool exists = column + 16 * i + lane % 4 * 4 < p.width;
        const uint2 x = exists ? *reinterpret_cast<const uint2*>(source + 32 * i) : uint2{};
#pragma unroll
        for (int part = 2; part >= 0; --part) multiply_add(sums[part], weights[i][part], x.x, x.y);
      }
      s.parts[warp][tile][lane] = {sum_of_parts(sums, 0), sum_of_parts(sums, 1), sum_of_parts(sums, 2), sum_of_parts(sums, 3)};
    }
    __syncthreads();
    for (int i = threadIdx.x; i < tiles * 32; i += kThreads) {
      const int tile = i / 32;
      float4 sum = {};
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        const float4 v = s.parts[w][tile][i % 32];
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
      }
      float4* place = &s.pushed[tile / cluster * cluster + rank][i % 32];
      if (cluster > 1)
        common::push(place, sum, pushed, tile % cluster);
      else
        *place = sum;
    }
    if (own_tiles() == 0) return;
    if (cluster > 1)
      common::barrier_wait(pushed, 0);
    else
      __syncthreads();
    for (int i = threadIdx.x; i < own_tiles() * kTileSize; i += kThreads) {
      const int tile = i / kTileSize, at = i % kTileSize;
      const float* from = reinterpret_cast<const float*>(s.pushed[tile * cluster]) + at;
      float sum = 0.0f;
      for (int peer = 0; peer < cluster; ++peer) sum += from[peer * kTileSize];
      const int r = row + at / 16 + 8 * (at / 2 % 2), token = first + (tile * cluster + rank) * kTileTokens + at / 4 % 4 * 2 + at % 2;
      if (r < p.rows && token < p.tokens) p.out[int64_t(token) * p.rows + r] = sum * p.scale;
    }
  }
};

}  // namespace fp32_ops
