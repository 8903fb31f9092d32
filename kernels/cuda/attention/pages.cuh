// The producer of contexts in pages: a block of 64 keys is tiles of one page, which the TMA brings, nine boxes of 64 rows and 64 columns.
//
// After the end of the context a page may hold anything, also NaN, which a probability of zero would not remove. Values of the last
// block past the end are therefore overwritten with zeros before the block counts as arrived.
#pragma once

#include <cuda.h>

#include "attend.cuh"

namespace mla {

template <class C, bool kEvictFirst_>
struct Pages {
  static_assert(C::kLookup == Lookup::kPages && C::kStorage == Storage::kRows && !C::kPair && C::kTileBarriers);
  static constexpr int kMathRegisters = 216, kProducerRegisters = 72;

  static __device__ __forceinline__ Arrivals arrivals() { return {{1, 1}, 1, 128}; }

  static __device__ __forceinline__ void run(const Problem& p, SharedMemory& s, int cta, int ctas, int, const CUtensorMap* map) {
    const int warp = (threadIdx.x >> 5) & 3;
    const bool leader = threadIdx.x % 128 == 0;
    uint32_t phases = 3, q_phase = 0, last_phase = 0;  // `phases`: a bit for each buffer, the parity with which to wait for `empty`
    for (typename C::Work item(p, cta, ctas); item.more(); item.next()) {
      if (item.begin >= item.end) continue;
      // The first item's queries are loaded by a math group.
      if (q_phase++ > 0) {
        barrier_wait(shared_address(&s.q_empty), q_phase & 1);
        load_queries<C>(p, s, item.query, item.group * kRows, warp);
      }
      const int whole = min(item.end, item.keys / kBlock);
      int page = leader && item.begin < whole ? page_of(p, item, item.begin) : 0;
      for (int block = item.begin; block < whole; ++block) {
        const int buffer = (block - item.begin) & 1;
        if (leader) {
          const int next = block + 1 < whole ? page_of(p, item, block + 1) : 0;
          copy_block(p, s, map, buffer, phases >> buffer & 1, page, block * kBlock % p.keys.page_size);
          page = next;
        }
        phases ^= 1u << buffer;
      }
      __syncwarp();  // with the leader
      if (whole < item.end) {
        const int buffer = (whole - item.begin) & 1;
        copy_last(p, s, map, item, whole, buffer, phases >> buffer & 1, last_phase);
        phases ^= 1u << buffer;
        last_phase ^= 1;
      }
    }
  }

 private:
  static __device__ __forceinline__ int page_of(const Problem& p, const typename C::Work& item, int block) {
    return p.keys.page_of(item.query, block * kBlock);  // the TMA reads zeros for a page outside the cache
  }

  static __device__ __forceinline__ void copy_block(const Problem& p, SharedMemory& s, const CUtensorMap* map, int buffer,
                                                    uint32_t parity, int page, int row) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if (tile == 0 || tile == kLeftTiles) barrier_wait(shared_address(&s.empty[buffer][tile / kLeftTiles]), parity);
      const uint32_t full = shared_address(&s.tile_full[buffer][tile]);
      barrier_arrive_expect(full, kTile);
      copy_box(shared_address(s.k[buffer]) + tile * kTile, map, full, tile * 64, row, page);
    }
  }

  // For a block that is not whole. Scores past the end are masked, so rope need not be overwritten.
  static __device__ __forceinline__ void copy_last(const Problem& p, SharedMemory& s, const CUtensorMap* map,
                                                   const typename C::Work& item, int block, int buffer, uint32_t parity,
                                                   uint32_t last_phase) {
    const uint32_t copied = shared_address(&s.last_copied), target = shared_address(s.k[buffer]);
    const bool leader = threadIdx.x % 128 == 0;
    if (leader) {
      const int page = page_of(p, item, block), row = block * kBlock % p.keys.page_size;
      barrier_arrive_expect(copied, kTiles * kTile);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if (tile == 0 || tile == kLeftTiles) barrier_wait(shared_address(&s.empty[buffer][tile / kLeftTiles]), parity);
        copy_box(target + tile * kTile, map, copied, tile * 64, row, page);
      }
    }
    barrier_wait(copied, last_phase);
    // Sixteen bytes at a time; a row of a tile has eight pieces, in an order that does not matter.
    for (int piece = (item.keys - block * kBlock) * 8 + threadIdx.x % 128; piece < kBlock * 8; piece += 128)
#pragma unroll
      for (int tile = 0; tile < kTiles - 1; ++tile) store_shared16(target + tile * kTile + piece * 16, 0, 0, 0, 0);
    fence_async_proxy();
    named_sync(kTogether, 128);
    if (leader)
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) barrier_arrive(shared_address(&s.tile_full[buffer][tile]));
  }

  static __device__ __forceinline__ void copy_box(uint32_t target, const CUtensorMap* map, uint32_t barrier, int column, int row,
                                                  int page) {
    if constexpr (kEvictFirst_)
      asm volatile(
          "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(
              target),
          "l"(map), "r"(barrier), "r"(column), "r"(row), "r"(page), "l"(kEvictFirst)
          : "memory");
    else
      copy_3d(target, map, barrier, column, row, page);
  }
};

}  // namespace mla
