// How the math warps of the kernel for many rows write their results.
#pragma once

#include "large_tile.cuh"

namespace gemm {

// A warp's 16 rows from `first` on and its columns from `column` on, as the accumulators of MMAs hold them; rows from `end` on are left out.
// bf16 goes through `staged`, shared memory of this warp, once the TMA has read what was there; it is written when the warp calls
// wait_bulk_stores.
template <class Config, class Out>
__device__ __forceinline__ void store_results(const float (&total)[Config::kWaves][Config::kN / 2], const CUtensorMap& out_map,
                                              const Product& p, bool bulk_stores, const uint8_t* staged, int first, int end, int column) {
  constexpr int kWaves = Config::kWaves, kN = Config::kN;
  const int lane = threadIdx.x % 32;
  Out* out = static_cast<Out*>(p.out);
  if constexpr (std::is_same_v<Out, float>) {
#pragma unroll
    for (int w = 0; w < kWaves; ++w)
#pragma unroll
      for (int j = 0; j < kN / 2; ++j) {
        const int r = first + lane / 4 + j / 2 % 2 * 8, c = column + w * kN + j / 4 * 8 + lane % 4 * 2 + j % 2;
        if (r < end && c < p.n) out[int64_t(r) * p.n + c] = total[w][j];
      }
    return;
  }
  // The TMA leaves out what is past the last row of the matrix, not what is past an expert's.
  const bool bulk = bulk_stores && (p.offsets == nullptr || first + 16 <= end);
  constexpr int kBox = Config::kBox, kStaged = Config::kStaged, kRowBytes = kBox * 2, kBoxBytes = 16 * kRowBytes;
  const auto place = [&](int box, int r, int piece) {  // of 16 bytes: box, row and column under the swizzle
    const uint32_t linear = r * kRowBytes + piece * 16;
    return box % kStaged * kBoxBytes + (linear ^ (linear >> 7 & Config::kSwizzleBits) << 4);
  };
  constexpr int kBatch = kStaged == Config::kBoxes ? kStaged : 1;  // boxes that leave together: all, or one after the other
#pragma unroll
  for (int begin = 0; begin < Config::kBoxes; begin += kBatch) {
    if (lane == 0) {
      if (bulk)
        wait_bulk_reads<kStaged / kBatch - 1>();
      else
        wait_bulk_reads<0>();
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kBatch * kBox / 16; ++j) {
      const int at = begin * kBox + j * 16;  // of the warp's columns
      const float* x = total[at / kN] + at % kN / 2;
      common::store_matrices(shared_address(staged) + place(at / kBox, lane % 16, at % kBox / 8 + lane / 16),
                             common::pack<__nv_bfloat16>(x[0], x[1]), common::pack<__nv_bfloat16>(x[2], x[3]),
                             common::pack<__nv_bfloat16>(x[4], x[5]), common::pack<__nv_bfloat16>(x[6], x[7]));
    }
    if (bulk) {
      common::fence_async_proxy();
      __syncwarp();
      if (lane == 0) {
#pragma unroll
        for (int box = begin; box < begin + kBatch; ++box)
          store_2d(&out_map, shared_address(staged) + box % kStaged * kBoxBytes, column + box * kBox, first);
        commit_bulk_stores();
      }
      continue;
    }
    __syncwarp();
    constexpr int kPieces = kBatch * kBox / 8;  // of a row
    for (int x = lane; x < 16 * kPieces; x += 32) {
      const int r = x / kPieces, offset = begin * kBox + x % kPieces * 8, c = column + offset;
      if (first + r >= end || c >= p.n) continue;
      const uint8_t* from = staged + place(offset / kBox, r, offset % kBox / 8);
      Out* to = out + int64_t(first + r) * p.n + c;
      if (p.n % 8 == 0) {
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
      } else {
        for (int y = 0; y < min(8, p.n - c); ++y) to[y] = reinterpret_cast<const Out*>(from)[y];
      }
    }
    __syncwarp();
  }
}

}  // namespace gemm
