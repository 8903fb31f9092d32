// The same products for many tokens, as chains of WGMMAs over K, ascending: the bits of in_order.cuh. A CTA keeps the weights of its head in
// shared memory, 128 KB, and streams tokens through, 64 at a time. So the time is that of reading and writing the tokens' rows.
//
// The first warpgroup copies tokens into a ring of stages of 128 dims; the other two multiply, each its own tiles of 64 tokens. Columns are
// permuted when weights are stored, so that what a thread accumulates are neighbours: 16 bytes of a result are one store.
#pragma once

#include "in_order.cuh"

namespace kv_up_projection {

// ---- The ring of stages that tokens come through, the MMAs of a stage, and the start of a kernel.

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

// The tiles of tokens of a CTA: a head's tiles are divided among the CTAs with its number.
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
template <cute::SM90::GMMA::Major kMajor>
__device__ __forceinline__ void multiply_stage(float (&total)[64], const uint8_t* tokens, common::Tile weights, uint32_t half, uint32_t step) {
  using Multiply = cute::SM90::GMMA::MMA_64x128x16_F32BF16BF16_SS<cute::SM90::GMMA::Major::K, kMajor>;
  const common::Tile a = common::Tile::rows(common::shared_address(tokens));
  common::hold(total);
  common::mma_begin();
#pragma unroll
  for (int i = 0; i < kStageDims / 16; ++i)
    multiply_tiles<Multiply>(total, a.at(i / 4 * kSwizzled + i % 4 * 32), weights.at(i / 4 * half + i % 4 * step));
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

// wk of a head, [128, 512], as rows of K in tiles of 64 x 64, the first 64 rows before the others. Column 32 G + 8 t + 2 j + e is
// stored as 32 G + 8 j + 2 t + e, so that lane t of a quad accumulates 8 neighbours. The lanes of a store use all banks.
__device__ __forceinline__ void store_query_weights(const Queries& p, ManyMemory& s, int head) {
  constexpr int kAtOnce = 8, kColumnGroups = kLatent / 32, kTurns = kNope / 8 * kColumnGroups / (kMathGroups * 4);
  const int warp = threadIdx.x / 32 - 4, t = threadIdx.x % 4, line = threadIdx.x % 32 / 4;
  for (int turn = 0; turn < kTurns; turn += kAtOnce) {
    uint4 held[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = (turn + i) * kMathGroups * 4 + warp, group = at % kColumnGroups, row = at / kColumnGroups * 8 + line;
      held[i] = load_weights(p.wk + head * p.wk_head + int64_t(row) * kLatent + group * 32 + t * 8);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = (turn + i) * kMathGroups * 4 + warp, group = at % kColumnGroups, row = at / kColumnGroups * 8 + line;
      uint8_t* to = s.weights + (row / 64 * (kLatent / 64) + group / 2) * kSwizzled + row % 64 * 128 + 4 * t;
      const uint32_t words[4] = {held[i].x, held[i].y, held[i].z, held[i].w};
#pragma unroll
      for (int j = 0; j < 4; ++j) *reinterpret_cast<uint32_t*>(to + ((group % 2 * 4 + j ^ line) << 4)) = words[j];
    }
  }
}

// The rotated dims of 64 tokens, by one warpgroup. All of a thread's loads come before its first store, which might change what they read, as
// far as the compiler knows.
__device__ __forceinline__ void rotate_tokens(const Queries& p, int first, int head) {
  constexpr int kAtOnce = 4;
  const int quads = p.rope / 8;
  for (int begin = threadIdx.x; begin < kTileTokens * quads; begin += kAtOnce * kGroupThreads) {
    Quad held[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = begin + i * kGroupThreads;
      held[i].load(p, min(first + at / quads, p.tokens - 1), head, at % quads);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = begin + i * kGroupThreads;
      if (at < kTileTokens * quads && first + at / quads < p.tokens) held[i].store(p, first + at / quads, head, at % quads);
    }
  }
}

__global__ void __launch_bounds__(kManyThreads, 1) absorb_queries_many_kernel(Queries p) {
  constexpr int kColumnsAtOnce = 128;
  extern __shared__ __align__(1024) uint8_t many_memory[];
  ManyMemory& s = *reinterpret_cast<ManyMemory*>(many_memory);
  common::pdl_launch_dependents();
  const int head = blockIdx.x, group = threadIdx.x / kGroupThreads - 1;
  const Tiles tiles(p.tokens);
  Stage stage;
  prepare(p, s, group, [&] { store_query_weights(p, s, head); });
  if (group < 0) {
    for (int tile = tiles.begin; tile < tiles.end; ++tile) {
      copy_tokens(s, stage, p.q + head * p.q_head, p.q_token, tile * kTileTokens, p.tokens);
      stage.advance(1);
      rotate_tokens(p, tile * kTileTokens, head);
    }
    finish_copies();
    return;
  }
  const int lane = threadIdx.x % 32, t = lane % 4, row = threadIdx.x % kGroupThreads / 32 * 16 + lane / 4;
  stage.advance(group);
  for (int tile = tiles.begin + group; tile < tiles.end; tile += kMathGroups) {
    wait_stage(s, stage);
#pragma unroll 1
    for (int column = 0; column < kLatent; column += kColumnsAtOnce) {
      float total[64] = {};
      multiply_stage<cute::SM90::GMMA::Major::MN>(total, s.tokens[stage.slot],
                                                  common::Tile::columns(common::shared_address(s.weights + column / 64 * kSwizzled)),
                                                  kLatent / 64 * kSwizzled, 2048);
      if (column + kColumnsAtOnce == kLatent) release_stage(s, stage, group);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int token = tile * kTileTokens + row + 8 * half;
        if (token >= p.tokens) continue;
        __nv_bfloat16* out = p.out + (int64_t(token) * p.heads + head) * (kLatent + p.rope) + column + 8 * t;
#pragma unroll
        for (int i = 0; i < kColumnsAtOnce / 32; ++i) {
          const float* from = total + 16 * i + 2 * half;
          *reinterpret_cast<uint4*>(out + 32 * i) =
              make_uint4(pack(from[0], from[1]), pack(from[4], from[5]), pack(from[8], from[9]), pack(from[12], from[13]));
        }
      }
    }
    stage.advance(kMathGroups);
  }
}

// wv of a head, [128, 512], as rows of N in tiles of 128 x 64. Value 64 h + 16 t + 2 j + e is row 64 h + 8 j + 2 t + e.
__device__ __forceinline__ void store_value_weights(const Values& p, ManyMemory& s, int head) {
  constexpr int kPieces = kLatent / 8;
  const uint32_t to = common::shared_address(s.weights);
#pragma unroll 8
  for (int i = threadIdx.x - kGroupThreads; i < kNope * kPieces; i += kMathGroups * kGroupThreads) {
    const int value = i / kPieces, piece = i % kPieces, line = value / 64 * 64 + value % 16 / 2 * 8 + value % 64 / 16 * 2 + value % 2;
    common::copy16<0>(to + piece / 8 * 2 * kSwizzled + line * 128 + ((piece % 8 ^ line % 8) << 4), p.wv + head * p.wv_head + i * 8, 16);
  }
  finish_copies();
}

template <bool kUe8m0>
__global__ void __launch_bounds__(kManyThreads, 1) expand_quantize_many_kernel(Values p) {
  constexpr int kParts = kLatent / kStageDims;  // stages of a tile
  extern __shared__ __align__(1024) uint8_t many_memory[];
  ManyMemory& s = *reinterpret_cast<ManyMemory*>(many_memory);
  common::pdl_launch_dependents();
  const int head = blockIdx.x, group = threadIdx.x / kGroupThreads - 1;
  const Tiles tiles(p.tokens);
  Stage stage;
  prepare(p, s, group, [&] { store_value_weights(p, s, head); });
  if (group < 0) {
    for (int tile = tiles.begin; tile < tiles.end; ++tile)
      for (int part = 0; part < kParts; ++part, stage.advance(1))
        copy_tokens(s, stage, p.latents + head * p.head + part * kStageDims, p.token, tile * kTileTokens, p.tokens);
    finish_copies();
    return;
  }
  const int lane = threadIdx.x % 32, t = lane % 4, row = threadIdx.x % kGroupThreads / 32 * 16 + lane / 4;
  stage.advance(group * kParts);
  for (int tile = tiles.begin + group; tile < tiles.end; tile += kMathGroups) {
    float total[64] = {};
#pragma unroll 1
    for (int part = 0; part < kParts; ++part, stage.advance(1)) {
      wait_stage(s, stage);
      multiply_stage<cute::SM90::GMMA::Major::K>(
          total, s.tokens[stage.slot], common::Tile::rows(common::shared_address(s.weights + part * (kStageDims / 64) * 2 * kSwizzled)),
          2 * kSwizzled, 32);
      release_stage(s, stage, group);
    }
    stage.advance((kMathGroups - 1) * kParts);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t token = tile * kTileTokens + row + 8 * half;
      float values[32];
#pragma unroll
      for (int i = 0; i < 32; ++i) values[i] = __bfloat162float(__float2bfloat16_rn(total[i / 2 * 4 + 2 * half + i % 2]));
      uint32_t codes[8];
      const float scale = common::quantize_lanes<4>(values, kUe8m0, codes);
      if (token >= p.tokens) continue;
      uint8_t* to = p.values + (token * p.heads + head) * kNope + 16 * t;
      *reinterpret_cast<uint4*>(to) = make_uint4(codes[0], codes[1], codes[2], codes[3]);
      *reinterpret_cast<uint4*>(to + 64) = make_uint4(codes[4], codes[5], codes[6], codes[7]);
      if (t == 0) p.scales[token * p.heads + head] = scale;
    }
  }
}

}  // namespace kv_up_projection
