// What the kernels of many_tokens.cuh share: the ring of stages that tokens come through, the MMAs of a stage, and the start of a kernel.
#pragma once

#include "../common/groups.cuh"
#include "kernels.cuh"

namespace kv_up_projection {

constexpr int kGroupThreads = 128, kMathGroups = 2, kManyThreads = (1 + kMathGroups) * kGroupThreads;
constexpr int kTileTokens = 64, kSwizzled = 8192;  // bytes of 64 rows of 64 dims, a tile of ptx.cuh
constexpr int kStageDims = 128, kStages = 6;
constexpr int kMathBarrier = 1;

struct ManyMemory {
  uint8_t weights[kWeightBytes];
  uint8_t tokens[kStages][kStageDims / 64 * kSwizzled];
  uint64_t full[kStages], empty[kStages];
};
static_assert(sizeof(ManyMemory) <= 227 * 1024);

struct Stage {
  int slot = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void advance(int by) {
    for (slot += by; slot >= kStages; slot -= kStages) phase ^= 1;
  }
};

// The tiles of tokens of a CTA: those of a head are divided among the CTAs with its number.
struct Tiles {
  int begin, end;
  __device__ __forceinline__ explicit Tiles(int tokens) {
    const int all = (tokens + kTileTokens - 1) / kTileTokens, each = (all + gridDim.y - 1) / gridDim.y;
    begin = blockIdx.y * each, end = min(begin + each, all);
  }
};

// Copies 64 tokens' rows of kStageDims dims, `from` being that of token 0, by one warpgroup; zeros beyond the last token.
__device__ __forceinline__ void copy_tokens(ManyMemory& s, const Stage& stage, const __nv_bfloat16* from, int64_t stride, int first,
                                            int tokens) {
  common::barrier_wait(common::shared_address(&s.empty[stage.slot]), stage.phase ^ 1);
  const int piece = threadIdx.x % 16, line = threadIdx.x / 16;  // 16 bytes each; every eighth row
  const uint32_t to = common::shared_address(s.tokens[stage.slot]) + piece / 8 * kSwizzled + line * 128 + ((piece % 8 ^ line) << 4);
#pragma unroll
  for (int i = 0; i < kTileTokens / 8; ++i) {
    const int token = first + line + 8 * i;
    const bool exists = token < tokens;
    common::copy16<0>(to + i * 1024, from + (exists ? token * stride : 0) + piece * 8, exists ? 16 : 0);
  }
  common::barrier_arrive_after_copies(common::shared_address(&s.full[stage.slot]));
}

__device__ __forceinline__ void finish_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// total += a stage of 64 tokens times 128 columns of the weights. kMajor: how the weights lie; `weights` for the stage's first 64 dims, and
// `half` bytes later for the others; 16 dims are `step` bytes apart. Waits for the MMAs.
template <cute::SM90::GMMA::Major kMajor, size_t... I>
__device__ __forceinline__ void multiply_stage(float (&total)[64], const uint8_t* tokens, common::Tile weights, uint32_t half, uint32_t step,
                                               std::index_sequence<I...>) {
  using Multiply = cute::SM90::GMMA::MMA_64x128x16_F32BF16BF16_SS<cute::SM90::GMMA::Major::K, kMajor>;
  const common::Tile a = common::Tile::rows(common::shared_address(tokens));
  common::hold(total);
  common::mma_begin();
#pragma unroll
  for (int i = 0; i < kStageDims / 16; ++i)
    Multiply::fma(a.at(i / 4 * kSwizzled + i % 4 * 32), weights.at(i / 4 * half + i % 4 * step), total[I]..., cute::SM90::GMMA::ScaleOut::One);
  common::mma_commit();
  common::mma_wait<0>();
  common::hold(total);
}

__device__ __forceinline__ void wait_stage(ManyMemory& s, const Stage& stage) {
  common::barrier_wait(common::shared_address(&s.full[stage.slot]), stage.phase);
  common::fence_async_proxy();
}
// All warps of a warpgroup have read the stage.
__device__ __forceinline__ void release_stage(ManyMemory& s, const Stage& stage, int group) {
  common::named_sync(kMathBarrier + 1 + group, kGroupThreads);
  if (threadIdx.x % kGroupThreads == 0) common::barrier_arrive(common::shared_address(&s.empty[stage.slot]));
}

// The start of either kernel. By `store` the math warpgroups store the weights, for the MMAs of both, while the kernel before this one may
// still run; all threads wait for its end.
template <class Operands, class Store>
__device__ __forceinline__ void prepare(const Operands& p, ManyMemory& s, int group, Store store) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      common::barrier_init(common::shared_address(&s.full[i]), kGroupThreads);
      common::barrier_init(common::shared_address(&s.empty[i]), 1);
    }
    common::barrier_init_fence();
  }
  __syncthreads();
  if (group >= 0) {
    if (!p.static_weights) common::pdl_wait();
    store();
    common::fence_async_proxy();
    common::named_sync(kMathBarrier, kMathGroups * kGroupThreads);
  }
  common::pdl_wait();
}

}  // namespace kv_up_projection
