// The MMAs of the attention core, and the barriers around them: scores, values, and the release of keys that both groups have read.
#pragma once

#include "results.cuh"

namespace mla {

// Waits for half of the keys of a block. Where tiles have barriers, score_tiles waits instead.
template <class C>
__device__ __forceinline__ void wait_for_keys(SharedMemory& s, int buffer, int half, uint32_t parity) {
  if constexpr (!C::kTileBarriers) barrier_wait(shared_address(&s.full[buffer][half]), parity);
  if constexpr (C::Order::kFence) fence_async_proxy();
}

// Waits for half of the values of a block that the other group has scored.
template <class C, int kHalf>
__device__ __forceinline__ void wait_for_values(SharedMemory& s, int buffer, uint32_t parity) {
  if constexpr (C::kTileBarriers) {
#pragma unroll
    for (int tile = 0; tile < kLeftTiles; ++tile)
      barrier_wait(shared_address(&s.tile_full[buffer][kHalf * kLeftTiles + tile]), parity);
  } else {
    barrier_wait(shared_address(&s.full[buffer][kHalf]), parity);
  }
}

// Tiles [kFirst, kEnd) of Q K of the block in `buffer`; the caller has waited with wait_for_keys, and commits.
template <class C, int kFirst, int kEnd>
__device__ __forceinline__ void score_tiles(float (&scores)[32], SharedMemory& s, int buffer, uint32_t parity) {
  const Tile q = Tile::rows(shared_address(s.q)), k = Tile::rows(shared_address(s.k[buffer]));
  mma_begin();
#pragma unroll
  for (int tile = kFirst; tile < kEnd; ++tile) {
    if constexpr (C::kTileBarriers) barrier_wait(shared_address(&s.tile_full[buffer][tile]), parity);
#pragma unroll
    for (int step = 0; step < 4; ++step)
      multiply_tiles<typename Mma<typename C::Element>::Scores>(scores, q.at(tile * kTile + step * 32), k.at(tile * kTile + step * 32),
                                                                tile + step > 0);
  }
}

// All of Q K.
template <class C>
__device__ __forceinline__ void compute_scores(float (&scores)[32], SharedMemory& s, int buffer, uint32_t parity) {
  wait_for_keys<C>(s, buffer, 0, parity);
  score_tiles<C, 0, kLeftTiles>(scores, s, buffer, parity);
  wait_for_keys<C>(s, buffer, 1, parity);
  score_tiles<C, kLeftTiles, kTiles>(scores, s, buffer, parity);
  mma_commit();
}

// One arrival per warp, in both CTAs of a pair: both write there, so a half may be overwritten when all readers in both are done.
template <class C, int kHalf>
__device__ __forceinline__ void release(SharedMemory& s, int buffer) {
  __syncwarp();
  if ((threadIdx.x & 31) == 0) {
    const uint32_t local = shared_address(&s.empty[buffer][kHalf]);
    if constexpr (C::kPair) {
      barrier_arrive_remote(peer_address(local, 0));
      barrier_arrive_remote(peer_address(local, 1));
    } else {
      barrier_arrive(local);
    }
  }
}

// The part of Q K that is issued before this group waits for the other group's probabilities.
template <class C, Ahead kAhead>
__device__ __forceinline__ void scores_before(float (&scores)[32], SharedMemory& s, int buffer, uint32_t parity) {
  if constexpr (kAhead == Ahead::kLeftHalf) {
    wait_for_keys<C>(s, buffer, 0, parity);
    score_tiles<C, 0, kLeftTiles>(scores, s, buffer, parity);
    mma_commit();
  } else if constexpr (kAhead == Ahead::kAll) {
    compute_scores<C>(scores, s, buffer, parity);
  }
}

// The part of Q K that is issued after the MMAs of the other group's probabilities with their values. Waits for those MMAs, which are in
// flight, and releases half kHalf of the buffer that holds the values.
template <class C, Ahead kAhead, int kHalf>
__device__ __forceinline__ void scores_after(float (&scores)[32], float (&o)[128], SharedMemory& s, int buffer, uint32_t parity) {
  static_assert(kAhead != Ahead::kAll);
  constexpr int kFirst = kAhead == Ahead::kNothing ? 0 : kLeftTiles;
  if constexpr (C::Order::kRelease == Release::kAtOnce) {
    mma_wait<0>();
    hold(o);
    release<C, kHalf>(s, buffer ^ 1);
    static_assert(kFirst == 0);
    compute_scores<C>(scores, s, buffer, parity);
  } else {
    wait_for_keys<C>(s, buffer, kFirst == 0 ? 0 : 1, parity);
    score_tiles<C, kFirst, kFirst + 1>(scores, s, buffer, parity);
    mma_commit();
    mma_wait<1>();
    hold(o);
    release<C, kHalf>(s, buffer ^ 1);
    if constexpr (kFirst == 0) {
      score_tiles<C, 1, kLeftTiles>(scores, s, buffer, parity);
      wait_for_keys<C>(s, buffer, 1, parity);
    }
    score_tiles<C, kFirst == 0 ? kLeftTiles : kFirst + 1, kTiles>(scores, s, buffer, parity);
    mma_commit();
  }
}

// Steps [kFirst, kEnd) of o += P V for 256 columns starting at tile `v`; P from this group's registers or from the other group's tile. A
// step is 16 keys.
template <class Element, int kFirst = 0, int kEnd = 4>
__device__ __forceinline__ void add_values(float (&o)[128], const uint32_t (&packed)[16], uint32_t v) {
  const Tile values = Tile::columns(v);
  mma_begin();
#pragma unroll
  for (int step = kFirst; step < kEnd; ++step)
    multiply_tiles<typename Mma<Element>::OutputRegisters>(o, packed + 4 * step, values.at(step * 2048));
  mma_commit();
}
template <class Element, int kFirst = 0, int kEnd = 4, bool kCommit = true>
__device__ __forceinline__ void add_values(float (&o)[128], uint32_t tile, uint32_t v) {
  const Tile values = Tile::columns(v), probabilities = Tile::rows(tile);
  mma_begin();
#pragma unroll
  for (int step = kFirst; step < kEnd; ++step)
    multiply_tiles<typename Mma<Element>::OutputShared>(o, probabilities.at(step * 32), values.at(step * 2048));
  if constexpr (kCommit) mma_commit();
}

// Waits for the other group's probabilities, and adds their values. kParity is 0 for probabilities of even blocks, 1 for odd ones.
template <class C, int kParity>
__device__ __forceinline__ void add_others_values(float (&o)[128], RowState& row, SharedMemory& s, int line, uint32_t tile, uint32_t v) {
  using Element = typename C::Element;
  named_sync(kHandover + kParity, 256);
  rescale(o, row, s.reference[kParity][line], s.reference[kParity][line + 8]);
  add_values<Element, 0, 2, false>(o, tile, v);
  named_sync(kHandoverRest + kParity, 256);
  add_values<Element, 2, 4>(o, tile, v);
}

}  // namespace mla
