// The copying warps of the kernel for many rows.
#pragma once

#include "large_tile.cuh"

namespace gemm {

constexpr int kScaleThreads = 96;  // the producer's warps 1 to 3

// Copies this CTA's share of slice `slice` of a tile's tokens or of its weights. `box`: how many tokens its share has.
template <class Config>
__device__ __forceinline__ void copy_tokens(const CUtensorMap& map, const TileScheduler<Config>& tile, uint32_t to, uint32_t barrier, int slice,
                                            int rank, int box) {
  if constexpr (Config::kShares == Shares::kTokens) {
    copy_2d_to_pair(to + rank * box * kSlice, &map, barrier, slice * kSlice, tile.first + rank * box);
  } else {
    copy_2d(to, &map, barrier, slice * kSlice, tile.first);
  }
}
template <class Config>
__device__ __forceinline__ void copy_weights(const CUtensorMap& map, const TileScheduler<Config>& tile, uint32_t to, uint32_t barrier,
                                             int slice, int rank) {
  if (Config::kShares == Shares::kWeights && tile.shares) {
    const int half = rank * Config::kWeightBox;
    copy_3d_to_pair(to + half * kSlice, &map, barrier, slice * kSlice, tile.column + half, tile.expert);
    return;
  }
  for (int box = 0; box < Config::kColumns; box += Config::kWeightBox)
    copy_3d(to + box * kSlice, &map, barrier, slice * kSlice, tile.column + box, tile.expert);
}

// The thread of the producer that copies the tiles of a and b.
template <class Config>
__device__ __forceinline__ void copy_tiles(const TokenMaps<Config>& a_maps, const CUtensorMap& b_map, const Product& p, int rank, uint32_t stages,
                                           typename Config::Rest& s) {
  UnitQueue<Config> units = {p, s};
  TileScheduler<Config> tile;
  int stage = 0, phase = 0;
  for (; tile.find(p, units.index, rank); units.next()) {
    constexpr int kShared = Config::kShares == Shares::kTokens ? 2 : 1, kStep = Config::kBoxStep;
    const int steps = (min(Config::kRows, tile.end - tile.first) + kShared * kStep - 1) / (kShared * kStep), box = steps * kStep;
    const CUtensorMap& a_map = a_maps.maps[Config::kTokenMaps == 1 ? 0 : steps - 1];
    const uint32_t bytes = (kShared * box + Config::kColumns) * kSlice;
    for (int i = 0; i < p.slices; ++i) {
      const uint32_t barrier = shared_address(&s.full[stage]), tokens = stages + stage * Config::kStageBytes;
      barrier_wait(shared_address(&s.empty[stage]), phase ^ 1);
      barrier_arrive_expect(barrier, bytes);
      copy_tokens(a_map, tile, tokens, barrier, i, rank, box);
      copy_weights(b_map, tile, tokens + Config::kRows * kSlice, barrier, i, rank);
      if (++stage == Config::kStages) stage = 0, phase ^= 1;
    }
  }
}

// The warps that copy scales, and tell the math warps which tile they are of.
template <class Config>
__device__ __forceinline__ void copy_scales(const Product& p, bool vector_scales, int rank, typename Config::Rest& s) {
  const int thread = threadIdx.x - 32, blocks = (p.n + kWeights - 1) / kWeights;
  UnitQueue<Config> units = {p, s};
  TileScheduler<Config> tile;
  int chunk = 0, phase = 0;
  for (;; units.next()) {
    const bool found = tile.find(p, units.index, rank);
    const int claimed = found && thread == 0 ? units.claim(rank) : 0;
    const float* b_scale = p.b_scale + tile.expert * p.b_scale_expert_stride;
    for (int i = 0; i < (found ? p.slices : 1); i += kScaleSlices) {
      typename Config::Chunk& to = s.chunks[chunk];
      const int count = found ? min(kScaleSlices, p.slices - i) : 0;
      barrier_wait(shared_address(&s.chunks_empty[chunk]), phase ^ 1);
      if (thread == 0) {
        to.tile = make_int4(tile.first, tile.column, tile.end, found);
        barrier_arrive(shared_address(&s.chunks_full[chunk]));
      }
      // The scales of a in their own layout: 32 bytes of each row at once, since each row takes the L1 a cycle whatever its length.
      if (vector_scales) {
        for (int piece = thread; piece < 2 * Config::kRows; piece += kScaleThreads) {
          const int row = piece / 2, part = piece % 2;
          const float* source = p.a_scale + min(tile.first + row, p.rows - 1) * p.a_scale_stride + i + 4 * part;
          if (4 * part < count) common::copy16<0>(shared_address(to.tokens[part][row]), source, 16);
        }
      } else {
        for (int piece = thread; piece < kScaleSlices * Config::kRows; piece += kScaleThreads) {
          const int row = piece / kScaleSlices, slice = piece % kScaleSlices;
          const float* source = p.a_scale + min(tile.first + row, p.rows - 1) * p.a_scale_stride + i + slice;
          if (slice < count) common::copy4(shared_address(&to.tokens[slice / 4][row][slice % 4]), source);
        }
      }
      for (int piece = thread; piece < kScaleSlices * Config::kBlocks; piece += kScaleThreads) {
        const int block = piece / kScaleSlices, slice = piece % kScaleSlices;
        const float* source = b_scale + min(tile.column / kWeights + block, blocks - 1) * p.b_scale_stride + i + slice;
        if (slice < count) common::copy4(shared_address(&to.weights[block][slice]), source);
      }
      common::barrier_arrive_after_copies(shared_address(&s.chunks_full[chunk]));
      if (++chunk == Config::kChunks) chunk = 0, phase ^= 1;
    }
    if (!found) return units.drain();
    if (thread == 0) units.publish(rank, claimed);
  }
}

}  // namespace gemm
