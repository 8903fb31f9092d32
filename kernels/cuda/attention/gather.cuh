// The producer of 16-bit keys: rows are gathered by 16-byte asynchronous copies into the swizzled tiles.
#pragma once

#include "attend.cuh"

namespace mla {

template <class C>
struct Gather {
  static_assert(!C::kPair);
  static constexpr int kMathRegisters = 216, kProducerRegisters = 72;
  static constexpr int kPerThread = kBlock / 16;  // rows of a block that one thread copies a part of: eight threads copy a row
  static constexpr bool kMasks = C::kLookup == Lookup::kIndices;
  // Selected keys are shared between queries. Contexts have no L2 policy: with one, ptxas 13.0 assembles an LDGSTS of this loop that the
  // GPU calls illegal ([R + UR] with a cache policy); tests/kernels/test_compiled.py looks for that form.
  static constexpr uint64_t kPolicy = kMasks ? kEvictNormal : 0;

  static __device__ __forceinline__ Arrivals arrivals() { return {{128, 128}, 1, 128}; }

  static __device__ __forceinline__ void run(const Problem& p, SharedMemory& s, int cluster, int clusters, int) {
    const int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3, chunk = lane & 7, line = warp * 4 + lane / 8;
    const uint32_t swizzled = line * 128 + ((chunk ^ (line & 7)) << 4);
    uint32_t phases = 3;  // a bit for each buffer: the parity with which to wait for `empty`
    int next[kPerThread], flags[2];
    for_each_item<C>(
        p, s, typename C::Work(p, cluster, clusters), 0, warp,
        [&](const typename C::Work& item) { look_up(p, item, item.begin, line, next, flags); },
        [&](const typename C::Work& item) {
          for (int block = item.begin; block < item.end; ++block)
            fill(p, s, item, block, (block - item.begin) & 1, phases, line, chunk, swizzled, next, flags);
        });
  }

 private:
  // The slots of this thread's rows, and in the first warp the slots of two rows a lane, for the mask.
  static __device__ __forceinline__ void look_up(const Problem& p, const typename C::Work& item, int block, int line,
                                                 int (&slots)[kPerThread], int (&flags)[2]) {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i)
      slots[i] = p.keys.template slot<C::kLookup>(item.query, block * kBlock + 16 * i + line, item.keys);
    if (kMasks && line < 4)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        flags[i] = p.keys.template slot<C::kLookup>(item.query, block * kBlock + 32 * i + (threadIdx.x & 31), item.keys);
  }

  // Copies one block, whose slots are in `next`, and looks up the one after it.
  static __device__ __forceinline__ void fill(const Problem& p, SharedMemory& s, const typename C::Work& item, int block,
                                              int buffer, uint32_t& phases, int line, int chunk, uint32_t swizzled,
                                              int (&next)[kPerThread], int (&flags)[2]) {
    const uint8_t* source[kPerThread];
    const uint8_t* rope[kPerThread];
    uint32_t valid = 0;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const int slot = max(next[i], 0);
      if (next[i] >= 0) valid |= 1u << i;
      source[i] = p.keys.latent + (C::kLinear ? slot * p.keys.row_bytes : p.keys.offset(slot)) + chunk * 16;
      if (C::kStorage == Storage::kSplitRows) rope[i] = p.keys.rope + slot * p.keys.rope_row_bytes + chunk * 16;
    }
    uint64_t mask = 0;
    if (kMasks && line < 4) mask = uint64_t(__ballot_sync(~0u, flags[1] >= 0)) << 32 | __ballot_sync(~0u, flags[0] >= 0);
    if (block + 1 < item.end) look_up(p, item, block + 1, line, next, flags);
    const uint32_t target = opaque(shared_address(s.k[buffer]) + swizzled);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      barrier_wait(shared_address(&s.empty[buffer][half]), phases >> buffer & 1);
      // The math group of this parity has read the mask before both halves are released.
      if (kMasks && half == 1 && threadIdx.x % 128 == 0) {
        *reinterpret_cast<volatile uint64_t*>(&s.mask[buffer]) = mask;
        barrier_arrive(shared_address(&s.mask_full[buffer]));
      }
#pragma unroll
      for (int i = 0; i < kPerThread; ++i)
#pragma unroll
        for (int tile = half * kLeftTiles; tile < (half == 0 ? kLeftTiles : kTiles); ++tile)
          copy16<kPolicy>(target + tile * kTile + i * 16 * 128,
                          C::kStorage == Storage::kSplitRows && tile == 8 ? rope[i] : source[i] + tile * 128,
                          (valid >> i) & 1 ? 16 : 0);
      barrier_arrive_after_copies(shared_address(&s.full[buffer][half]));
    }
    phases ^= 1u << buffer;
  }
};

}  // namespace mla
