// The producer of contexts in pages: a block of 64 keys is tiles of one page, which the TMA brings, nine boxes of 64 rows and 64 columns.
//
// What a page holds past the end of the context may be anything, also NaN, which no probability of zero would remove. The last block, if
// it is not whole, is therefore copied row by row, with zeros for what is missing.
#pragma once

#include <cuda.h>

#include "attend.cuh"

namespace mla {

template <class C>
struct Pages {
  static_assert(C::kLookup == Lookup::kPages && C::kStorage == Storage::kRows && !C::kPair);
  static constexpr int kMathRegisters = 216, kProducerRegisters = 72;

  static __device__ __forceinline__ Arrivals arrivals() { return {{1, 1}, 1, 128}; }

  static __device__ __forceinline__ void run(const Problem& p, SharedMemory& s, int cta, int ctas, int, const CUtensorMap* map) {
    const int warp = (threadIdx.x >> 5) & 3;
    const bool leader = threadIdx.x % 128 == 0;
    uint32_t phases = 3, q_phase = 0;  // a bit for each buffer: the parity with which to wait for `empty`
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
        // Only the leader has waited for the phases so far: the others wait for it, and then for this one.
        named_sync(kTogether, 128);
        const int buffer = (whole - item.begin) & 1;
        copy_rows(p, s, item, whole, buffer, phases >> buffer & 1);
        phases ^= 1u << buffer;
      }
    }
  }

 private:
  static __device__ __forceinline__ int page_of(const Problem& p, const typename C::Work& item, int block) {
    return __ldg(p.keys.table + item.query * p.keys.table_stride + block * kBlock / p.keys.page_size);
  }

  static __device__ __forceinline__ void copy_block(const Problem& p, SharedMemory& s, const CUtensorMap* map, int buffer,
                                                    uint32_t parity, int page, int row) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t full = shared_address(&s.full[buffer][half]);
      barrier_wait(shared_address(&s.empty[buffer][half]), parity);
      barrier_arrive_expect(full, (half == 0 ? kLeftTiles : kTiles - kLeftTiles) * kTile);
#pragma unroll
      for (int tile = half * kLeftTiles; tile < (half == 0 ? kLeftTiles : kTiles); ++tile)
        copy_box(shared_address(s.k[buffer]) + tile * kTile, map, full, tile * 64, row, page);
    }
  }

  // A block that is not whole: rows past the end become zeros.
  static __device__ __forceinline__ void copy_rows(const Problem& p, SharedMemory& s, const typename C::Work& item, int block,
                                                   int buffer, uint32_t parity) {
    const int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3, chunk = lane & 7;
    barrier_wait(shared_address(&s.empty[buffer][0]), parity);
    barrier_wait(shared_address(&s.empty[buffer][1]), parity);
#pragma unroll 1
    for (int line = warp * 4 + lane / 8; line < kBlock; line += 16) {
      const int slot = p.keys.template slot<C::kLookup>(item.query, block * kBlock + line, item.keys);
      const uint8_t* source = p.keys.latent + p.keys.offset(max(slot, 0)) + chunk * 16;
      const uint32_t target = shared_address(s.k[buffer]) + line * 128 + ((chunk ^ (line & 7)) << 4);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) copy16<0>(target + tile * kTile, source + tile * 128, slot >= 0 ? 16 : 0);
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    fence_async_proxy();
    named_sync(kTogether, 128);
    if (threadIdx.x % 128 == 0) {
      barrier_arrive(shared_address(&s.full[buffer][0]));
      barrier_arrive(shared_address(&s.full[buffer][1]));
    }
  }

  static __device__ __forceinline__ void copy_box(uint32_t target, const CUtensorMap* map, uint32_t barrier, int column, int row,
                                                  int page) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
                     target),
                 "l"(map), "r"(barrier), "r"(column), "r"(row), "r"(page)
                 : "memory");
  }
};

}  // namespace mla
