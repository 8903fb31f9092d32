// How the math warps of a gated product write their results: silu(gate) * up, quantised to FP8 with a scale for each row and 128 columns.
// A tile has 64 of these columns, so that the two CTAs of a pair exchange the largest results of each row. The bits are those of
// grouped_gemm followed by swiglu_quantize (kernels/tile/quantize.py).
#pragma once

#include <cuda_fp8.h>

#include "large_tile.cuh"

namespace gemm {

__device__ __forceinline__ float rounded_to_bf16(float x) { return __bfloat162float(__float2bfloat16_rn(x)); }

// silu(gate) * up of values rounded to bf16, rounded once to bf16.
__device__ __forceinline__ float silu_times(float gate, float up) {
  gate = rounded_to_bf16(gate), up = rounded_to_bf16(up);
  float sigmoid;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(sigmoid) : "f"(1.0f + expf(-gate)));
  return rounded_to_bf16(gate * sigmoid * up);
}

// The scale of a group whose largest absolute value has the bits `top`, of which infinity and NaN are the largest: both make it NaN.
__device__ __forceinline__ float scale_of(int top, bool ue8m0) {
  const float quotient = __fdiv_rn(__int_as_float(top), 448.0f);
  const int up = (__float_as_int(quotient) + 0x7FFFFF) & -0x800000;  // the next power of two
  return __fmaf_rn(quotient, 0.0f, ue8m0 ? __int_as_float(up) : quotient);
}

// A warp's 16 rows from `first` on, those from `end` on left out, and the tile of gates and ups that begins at column `column` of both
// together. `stored`: how many tiles the warp has stored before.
template <class Config>
__device__ __forceinline__ void store_gated(const float (&total)[Config::kN / 2], const Product& p, typename Config::Rest& s, int rank, int stored,
                                            int first, int end, int column) {
  constexpr int kWidth = Config::kN / 2, kFloorBits = 0x38D1B717;  // columns of the result; 1e-4, the smallest amax of a group
  const int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
  float values[2][kWidth / 4];  // of this thread's two rows
  int top[2] = {kFloorBits, kFloorBits};
#pragma unroll
  for (int i = 0; i < kWidth / 2; ++i) {
    const float value = silu_times(total[i], total[kWidth / 2 + i]);
    values[i / 2 % 2][i / 4 * 2 + i % 2] = value;
    top[i / 2 % 2] = max(top[i / 2 % 2], __float_as_int(value) & 0x7FFFFFFF);
  }
#pragma unroll
  for (int& each : top) {
    each = max(each, __shfl_xor_sync(~0u, each, 1));
    each = max(each, __shfl_xor_sync(~0u, each, 2));
  }
  // Two places in turn: a CTA sends those of the next tile but one after it has got those of the next, which this warp sends after it has
  // read these.
  const int place = stored % 2;
  const uint32_t barrier = shared_address(&s.tops_full[place][warp]);
  int* tops = s.tops[place] + warp * 16 + lane / 4;
  if (lane == 0) barrier_arrive_expect(barrier, 16 * sizeof(int));
  if (lane % 4 < 2)
    common::push(reinterpret_cast<const float*>(tops + lane % 4 * 8), __int_as_float(lane % 4 == 0 ? top[0] : top[1]), barrier, rank ^ 1);
  barrier_wait(barrier, stored / 2 % 2);

  uint8_t* staged = s.out[warp];  // 16 rows of 64 bytes, 16 bytes of each at another place, so that no two words share a bank
  const auto at = [&](int row, int byte) { return staged + row * kWidth + (byte ^ row / 2 % 4 * 16); };
  float scales[2];
  __syncwarp();
#pragma unroll
  for (int x = 0; x < 2; ++x) {
    scales[x] = scale_of(max(top[x], tops[8 * x]), p.ue8m0);
    const float inverse = __fdiv_rn(1.0f, scales[x]);  // exact for a power of two
#pragma unroll
    for (int j = 0; j < kWidth / 8; ++j) {
      float2 pair = make_float2(values[x][2 * j], values[x][2 * j + 1]);
      if (p.ue8m0)
        pair.x *= inverse, pair.y *= inverse;
      else
        pair.x = __fdiv_rn(pair.x, scales[x]), pair.y = __fdiv_rn(pair.y, scales[x]);
      *reinterpret_cast<uint16_t*>(at(lane / 4 + 8 * x, 8 * j + lane % 4 * 2)) = __nv_cvt_float2_to_fp8x2(pair, __NV_SATFINITE, __NV_E4M3);
    }
  }
  __syncwarp();
  const int width = p.n / 2, groups = width / kWeights;
#pragma unroll
  for (int x = 0; x < 2; ++x) {
    const int row = lane / 4 + 8 * x;
    if (first + row >= end) continue;
    uint8_t* to = static_cast<uint8_t*>(p.out) + int64_t(first + row) * width + column / 2;
    *reinterpret_cast<uint4*>(to + lane % 4 * 16) = *reinterpret_cast<const uint4*>(at(row, lane % 4 * 16));
    if (rank == 0 && lane % 4 == 0) p.out_scale[int64_t(first + row) * groups + column / 2 / kWeights] = scales[x];
  }
}

}  // namespace gemm
