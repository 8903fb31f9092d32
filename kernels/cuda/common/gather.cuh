// The producer of 16-bit keys: rows are gathered by 16-byte asynchronous copies into the swizzled tiles.
#pragma once

#include "seesaw.cuh"

namespace mla {

// Rows of q into shared memory by `kWarps` warps; zeros beyond the last row.
template <class C, int kWarps>
__device__ __forceinline__ void load_queries(const Problem& p, SharedMemory& s, int query, int first_row, int warp) {
  using Element = typename C::Element;
  const int lane = threadIdx.x & 31, chunk = lane & 7;
  for (int r = warp * 4 + lane / 8; r < kRows; r += 4 * kWarps) {
    const int row = first_row + r;
    const bool valid = row < p.rows;
    const int fresh = valid ? row / p.heads : 0, head = valid ? row - fresh * p.heads : 0;
    const Element* latent = static_cast<const Element*>(p.q) + query * p.q_stride + fresh * p.q_new_stride +
                            head * p.q_head_stride + chunk * 8;
    const Element* rope = static_cast<const Element*>(p.q_rope) + query * p.q_rope_stride + fresh * p.q_new_stride +
                          head * p.q_rope_head_stride + chunk * 8;
    const uint32_t target = opaque(shared_address(s.q) + r * 128 + ((chunk ^ (r & 7)) << 4));
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
      copy16<kEvictFirst>(target + tile * kTile, tile < 8 ? latent + tile * 64 : rope, valid ? 16 : 0);
  }
  barrier_arrive_after_copies(shared_address(&s.q_full));
}

template <class C>
struct Gather {
  static constexpr int kMathRegisters = 216, kProducerRegisters = 72;
  // All four warps gather; in a pair two do, the third writes masks and the fourth pushes.
  static constexpr int kWarps = C::kPair ? 2 : 4;
  static constexpr int kStride = 4 * kWarps;                      // rows at a time
  static constexpr int kPerThread = C::kLocalRows / kStride;      // rows of a block in the hands of one thread
  // Selected keys are shared between queries. Contexts have no policy: with one, ptxas 13.0 assembles an LDGSTS of this loop that the
  // GPU calls illegal ([R + UR] beside a cache policy); tests/kernels/cuda looks for that form.
  static constexpr uint64_t kPolicy = C::kLookup == Lookup::kIndices ? kEvictLast : 0;
  static constexpr bool kMasks = C::kLookup == Lookup::kIndices;
  static __device__ __forceinline__ Arrivals arrivals() {
    return {C::kPair ? 1u : 32u * kWarps, 32 * kWarps, 1, 32 * kWarps, 0};
  }

  static __device__ __forceinline__ void run(const Problem& p, SharedMemory& s, int cluster, int clusters, int rank) {
    const int warp = (threadIdx.x >> 5) & 3;
    if (warp < kWarps)
      gather(p, s, cluster, clusters, rank, warp);
    else if (warp == 2 && kMasks)
      masks(p, s, cluster, clusters);
    else if (warp == 3 && C::kPair)
      push(p, s, cluster, clusters, rank);
  }

  static __device__ __forceinline__ void gather(const Problem& p, SharedMemory& s, int cluster, int clusters, int rank,
                                                int warp) {
    const int lane = threadIdx.x & 31, chunk = lane & 7, line = warp * 4 + lane / 8;
    const uint32_t swizzled = (rank * C::kLocalRows + line) * 128 + ((chunk ^ (line & 7)) << 4);
    uint32_t phase[2] = {0, 0}, q_phase = 0;
    for (Items<C::kLookup> item(p, cluster, clusters); item.more(); item.next()) {
      if (item.begin >= item.end) continue;
      int next[kPerThread], flags[2];
      look_up(p, item, item.begin, rank, line, next, flags);
      barrier_wait(shared_address(&s.q_empty), q_phase ^ 1);
      q_phase ^= 1;
      load_queries<C, kWarps>(p, s, item.query, (item.group * (C::kPair ? 2 : 1) + rank) * kRows, warp);
      for (int block = item.begin; block < item.end; block += 2) {
        fill(p, s, item, block, 0, phase[0], rank, line, chunk, swizzled, next, flags);
        if (block + 1 < item.end) fill(p, s, item, block + 1, 1, phase[1], rank, line, chunk, swizzled, next, flags);
      }
    }
  }

  static __device__ __forceinline__ void look_up(const Problem& p, const Items<C::kLookup>& item, int block, int rank, int line,
                                                 int (&slots)[kPerThread], int (&flags)[2]) {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i)
      slots[i] = p.keys.template slot<C::kLookup>(item.query, block * kBlock + rank * C::kLocalRows + kStride * i + line, item.keys);
    if (kMasks && !C::kPair && line < 4)
      for (int i = 0; i < 2; ++i)
        flags[i] = p.keys.template slot<C::kLookup>(item.query, block * kBlock + 32 * i + (threadIdx.x & 31), item.keys);
  }

  static __device__ __forceinline__ void fill(const Problem& p, SharedMemory& s, const Items<C::kLookup>& item, int block,
                                              int buffer, uint32_t& phase, int rank, int line, int chunk, uint32_t swizzled,
                                              int (&next)[kPerThread], int (&flags)[2]) {
    const uint8_t* source[kPerThread];
    uint32_t bytes = 0;  // bit i: row i is valid
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const int slot = max(next[i], 0);
      if (next[i] >= 0) bytes |= 1u << i;
      source[i] = C::kStorage == Storage::kRows ? p.keys.latent + p.keys.offset(slot) + chunk * 16
                                                : reinterpret_cast<const uint8_t*>(int64_t(slot));
    }
    uint64_t mask = 0;
    if (kMasks && !C::kPair && line < 4)
      mask = uint64_t(__ballot_sync(~0u, flags[1] >= 0)) << 32 | __ballot_sync(~0u, flags[0] >= 0);
    if (block + 1 < item.end) look_up(p, item, block + 1, rank, line, next, flags);
    const uint32_t target = opaque(shared_address(s.k[buffer]) + swizzled);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      barrier_wait(shared_address(&s.empty[buffer][half]), phase ^ 1);
      if (kMasks && !C::kPair && half == 1 && threadIdx.x % 128 == 0) write_mask(s, buffer, mask);
#pragma unroll
      for (int tile = half * kLeftTiles; tile < (half == 0 ? kLeftTiles : kTiles); ++tile)
#pragma unroll
        for (int i = 0; i < kPerThread; ++i) {
          const uint8_t* from = source[i] + tile * 128;
          if constexpr (C::kStorage == Storage::kSplitRows) {
            const int64_t slot = reinterpret_cast<int64_t>(source[i]);
            from = tile < 8 ? p.keys.latent + slot * p.keys.row_bytes + tile * 128 + chunk * 16
                            : p.keys.rope + slot * p.keys.rope_row_bytes + chunk * 16;
          }
          copy16<kPolicy>(target + tile * kTile + i * kStride * 128, from, (bytes >> i) & 1 ? 16 : 0);
        }
      barrier_arrive_after_copies(shared_address(C::kPair ? &s.landed[buffer][half] : &s.full[buffer][half]));
    }
    phase ^= 1;
  }

  // The reader of a mask, the math group of this parity, is done with it before both halves are released.
  static __device__ __forceinline__ void write_mask(SharedMemory& s, int buffer, uint64_t mask) {
    *reinterpret_cast<volatile uint64_t*>(&s.mask[buffer]) = mask;
    barrier_arrive(shared_address(&s.mask_full[buffer]));
  }

  static __device__ __forceinline__ void masks(const Problem& p, SharedMemory& s, int cluster, int clusters) {
    const int lane = threadIdx.x & 31;
    uint32_t phase = 0;
    for (Items<C::kLookup> item(p, cluster, clusters); item.more(); item.next())
      for (int block = item.begin; block < item.end; ++block) {
        const int buffer = (block - item.begin) & 1, column = block * kBlock + lane;
        const uint32_t low = __ballot_sync(~0u, p.keys.template slot<C::kLookup>(item.query, column, item.keys) >= 0);
        const uint32_t high = __ballot_sync(~0u, p.keys.template slot<C::kLookup>(item.query, column + 32, item.keys) >= 0);
        barrier_wait(shared_address(&s.empty[buffer][0]), (phase >> buffer & 1) ^ 1);
        barrier_wait(shared_address(&s.empty[buffer][1]), (phase >> buffer & 1) ^ 1);
        phase ^= 1u << buffer;
        if (lane == 0) write_mask(s, buffer, uint64_t(high) << 32 | low);
        __syncwarp();
      }
  }

  static __device__ __forceinline__ void push(const Problem& p, SharedMemory& s, int cluster, int clusters, int rank) {
    const int lane = threadIdx.x & 31;
    constexpr int kBytes = C::kLocalRows * 128;  // of a tile
    uint32_t phase = 0;
    for (Items<C::kLookup> item(p, cluster, clusters); item.more(); item.next())
      for (int block = item.begin; block < item.end; ++block) {
        const int buffer = (block - item.begin) & 1;
        for (int half = 0; half < 2; ++half) {
          const int tiles = half == 0 ? kLeftTiles : kTiles - kLeftTiles;
          barrier_wait(shared_address(&s.landed[buffer][half]), phase >> buffer & 1);
          fence_async_proxy();
          const uint32_t full = shared_address(&s.full[buffer][half]);
          if (lane == 0) barrier_arrive_expect(full, tiles * kBytes);
          if (lane < tiles) {
            const uint32_t from = shared_address(s.k[buffer]) + (half * kLeftTiles + lane) * kTile + rank * kBytes;
            push_to_peer(peer_address(from, rank ^ 1), from, kBytes, peer_address(full, rank ^ 1));
          }
          __syncwarp();
        }
        phase ^= 1u << buffer;
      }
  }
};

}  // namespace mla
