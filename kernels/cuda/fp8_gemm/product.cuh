// The parts that both block-scaled FP8 GEMM kernels share. out [rows, n] = a [rows, k] times b[weight] [n, k] transposed. K is cut into
// slices of 128; a has one scale for each row and slice, b one for each 128 x 128 block.
#pragma once

#include <cuda.h>

#include "../common/fp8_mma.cuh"
#include "../common/lane_sums.cuh"
#include "../common/pdl.cuh"

namespace gemm {

using namespace common;

constexpr int kSlice = 128;                      // of K, the range of a scale: one 128-byte row of a swizzled tile
constexpr int kWeights = 128;                    // rows of b in a tile; they share a scale
constexpr int kWeightBytes = kWeights * kSlice;  // 16 KB

struct Product {
  const float* a_scale;  // [rows of a, slices]
  const float* b_scale;  // [weights of b, ceil(n / 128), slices]
  const int32_t* offsets;  // [experts + 1], the rows of each expert; null: one weight for all rows
  const int32_t* slots;  // [experts]: the weight in b of each expert, -1: its rows are not computed; null: the expert's number
  const int32_t* sorted_token_ids;  // [rows]: the row of a for each row of out; null: the row of the same number
  void* out;
  int32_t* claimed;  // how many units of work CTAs have claimed (UnitQueue), 0 before the launch; null: each CTA has its own share
  int64_t a_scale_stride;  // between rows
  int64_t b_scale_stride, b_scale_expert_stride;
  int rows, n, slices, experts;
};

__device__ __forceinline__ int weight_of(const Product& p, int expert) { return p.slots == nullptr ? expert : p.slots[expert]; }

// ---- copies by the TMA (tensor memory accelerator) ----

__device__ __forceinline__ void copy_2d(uint32_t destination, const CUtensorMap* map, uint32_t barrier, int column, int row) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
                   destination),
               "l"(map), "r"(barrier), "r"(column), "r"(row)
               : "memory");
}
// Multicast to the same shared-memory address of both CTAs of a pair; the bytes complete on the barriers of both.
__device__ __forceinline__ void copy_2d_to_pair(uint32_t destination, const CUtensorMap* map, uint32_t barrier, int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4, %5}], [%2], "
      "%3;" ::"r"(destination),
      "l"(map), "r"(barrier), "h"(uint16_t(3)), "r"(column), "r"(row)
      : "memory");
}
__device__ __forceinline__ void copy_3d_to_pair(uint32_t destination, const CUtensorMap* map, uint32_t barrier, int column, int row,
                                                int weight) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4, %5, %6}], [%2], "
      "%3;" ::"r"(destination),
      "l"(map), "r"(barrier), "h"(uint16_t(3)), "r"(column), "r"(row), "r"(weight)
      : "memory");
}
__device__ __forceinline__ void store_2d(const CUtensorMap* map, uint32_t source, int column, int row) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map), "r"(source), "r"(column), "r"(row)
               : "memory");
}
__device__ __forceinline__ void commit_bulk_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// All stores that this thread has committed, but for the last kPending, have read shared memory; all have been written.
template <int kPending>
__device__ __forceinline__ void wait_bulk_reads() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
__device__ __forceinline__ void wait_bulk_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

template <class Out>
__device__ __forceinline__ Out round_to(float x) {
  if constexpr (std::is_same_v<Out, float>)
    return x;
  else
    return __float2bfloat16_rn(x);
}

}  // namespace gemm
