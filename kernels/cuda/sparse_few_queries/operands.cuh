// FP8 sparse attention of few queries: code that its two kernels (scores.cuh, values.cuh) share.
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "../attention/softmax.cuh"

namespace mla {

constexpr int kMostBlocks = 128;  // of a query

constexpr int kQuadColumns = 16;  // whose scores of a row a quad of lanes holds

// Scratch of both kernels, in groups of 16 columns. Lane t of a quad has four scores of a group, which follow each other: of the columns 2 t,
// 2 t + 1, 2 t + 8 and 2 t + 9. The rows of a group follow each other, too, so that eight lanes read a whole line of L2.
struct Scratch {
  float* scores;   // [queries, width / 16, rows, 16]
  float* maxima;   // [queries, rows, width / 16], of a group each
  int width;       // the table's, rounded up to whole blocks

  __device__ __forceinline__ float* scores_of(int query, int rows, int row, int group) const {
    return scores + ((int64_t(query) * (width / kQuadColumns) + group) * rows + row) * kQuadColumns;
  }
};

__device__ __forceinline__ void load_transposed(uint32_t (&r)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}

// Copies `bytes` bytes, a multiple of 16, to the same place in the shared memory of the CTAs of a cluster that `mask` names; they complete on
// the barrier of each.
__device__ __forceinline__ void copy_bulk_to_all(uint32_t destination, const void* source, uint32_t bytes, uint32_t barrier, uint16_t mask) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(
                   destination),
               "l"(source), "r"(bytes), "r"(barrier), "h"(mask)
               : "memory");
}

// Sixteen e4m3 values times a scale, rounded once, to bf16.
__device__ __forceinline__ void convert(const uint4& bytes, float scale, uint32_t to) {
  const uint32_t words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
  uint32_t v[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const __half2_raw pair = __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(words[i / 2] >> (16 * (i & 1))), __NV_E4M3);
    const float2 exact = __half22float2(__half2(pair));
    v[i] = pack<__nv_bfloat16>(__fmul_rn(exact.x, scale), __fmul_rn(exact.y, scale));
  }
  store_shared16(to, v[0], v[1], v[2], v[3]);
  store_shared16(to + 16, v[4], v[5], v[6], v[7]);
}

constexpr uint32_t kNoRecord = ~0u;

// The start of an index's record, in units of 16 bytes.
__device__ __forceinline__ uint32_t place_of(const Problem& p, int index) {
  return p.keys.valid(index) ? static_cast<uint32_t>(p.keys.offset(index) >> 4) : kNoRecord;
}

}  // namespace mla
