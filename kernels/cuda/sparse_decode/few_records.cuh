// Few heads: records of keys in shared memory, and the two warps that bring them (few_heads.cuh has the whole).
#pragma once

#include "../attention/core.cuh"
#include "../attention/problem.cuh"
#include "../common/ptx.cuh"

namespace mla {

constexpr int kFewRows = 16;
constexpr int kFewMath = 128, kFewThreads = 192;
constexpr int kPitch = 672;       // of a record: 32 bytes past a multiple of 128, so that neighbours share no bank
constexpr int kScorePitch = 72;   // floats: eight banks further each row
constexpr int kProbabilityPitch = 144;  // bytes

template <int kStages>
struct FewMemory {
  uint8_t records[kStages][kBlock * kPitch];
  float scores[4][kFewRows * kScorePitch];
  uint8_t probabilities[kFewRows * kProbabilityPitch];
  float largest[4][kFewRows];  // of |q|, by warp
  float factor[kFewRows];      // rescales accumulated rows to a new block's reference
  float inverse[kFewRows];     // divides them by their sums at the end
  uint32_t mask[kStages][2];
  uint64_t full[kStages], empty[kStages];
};
static_assert(2 * (sizeof(FewMemory<2>) + 1024) <= 233472 && sizeof(FewMemory<4>) <= 232448, "two CTAs, or one, on a multiprocessor");

// The place of the record of a block's column: rows of the columns 2 t + b for fixed b, and those of fixed t, both fall into different banks.
__device__ __forceinline__ int record_of(int column) {
  const int t = column >> 1 & 3, b = column & 1;
  return (column & ~7) + 4 * b + ((t + 2 * b) & 3);
}

__device__ __forceinline__ uint4 load_shared16(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(address));
  return v;
}
__device__ __forceinline__ uint2 load_shared8(uint32_t address) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address));
  return v;
}
__device__ __forceinline__ float load_shared_float(uint32_t address) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(address));
  return v;
}
__device__ __forceinline__ void load_matrices(uint32_t (&a)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(address));
}
// Four e4m3 to two pairs of fp16.
__device__ __forceinline__ void widen(uint32_t bytes, uint32_t& low, uint32_t& high) {
  asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.rn.f16x2.e4m3x2 %0, l;\ncvt.rn.f16x2.e4m3x2 %1, h;\n}"
      : "=r"(low), "=r"(high)
      : "r"(bytes));
}
__device__ __forceinline__ uint32_t multiply_halves(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}
template <class Element>
__device__ __forceinline__ void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<Element, __half>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <int kStages>
__device__ __forceinline__ void few_producer(const Problem& p, FewMemory<kStages>& s) {
  const int lane = threadIdx.x & 31, half = (threadIdx.x - kFewMath) / 32;
  const uint32_t target = shared_address(s.records[0]) + record_of(32 * half + lane) * kPitch;
  uint32_t fills = 0;
  for (Items<Lookup::kIndices> item(p, blockIdx.x, gridDim.x); item.more(); item.next()) {
    if (item.begin >= item.end) continue;
    const auto look_up = [&](int block, int which) {
      return p.keys.slot<Lookup::kIndices>(item.query, block * kBlock + 32 * which + lane, item.keys);
    };
    int mine = look_up(item.begin, half), theirs = look_up(item.begin, half ^ 1);
    for (int block = item.begin; block < item.end; ++block, ++fills) {
      const int stage = fills % kStages, slot = mine;
      const uint32_t flags = __ballot_sync(~0u, slot >= 0), other = __ballot_sync(~0u, theirs >= 0);
      if (block + 1 < item.end) {
        mine = look_up(block + 1, half);
        theirs = look_up(block + 1, half ^ 1);
      }
      const uint32_t full = shared_address(&s.full[stage]), record = target + stage * kBlock * kPitch;
      barrier_wait(shared_address(&s.empty[stage]), (fills / kStages & 1) ^ 1);
      fence_async_proxy();  // zeros of an earlier round
      if (slot < 0 && (flags | other) != 0) {
#pragma unroll 1
        for (int i = 0; i < kValueWidth + 16; i += 16) store_shared16(record + i, 0, 0, 0, 0);
      }
      __syncwarp();
      if (lane == 0) {
        *reinterpret_cast<volatile uint32_t*>(&s.mask[stage][half]) = flags;
        barrier_arrive_expect(full, __popc(flags) * kRecord);
      }
      __syncwarp();
      if (slot >= 0) copy_bulk(record, p.keys.latent + p.keys.offset(slot), kRecord, full);
    }
  }
}

}  // namespace mla
