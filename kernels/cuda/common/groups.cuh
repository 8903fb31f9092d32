// FP8 quantisation in groups of 128, and what comes before it. Eight lanes hold a group; a lane holds two pieces of 8 neighbouring elements,
// 64 elements apart: kernels/tile/lanes.py has the same layout, and scales and codes have the same bits.
#pragma once

#include <cuda_fp8.h>

#include "lane_sums.cuh"
#include "ptx.cuh"

namespace common {

constexpr int kPiece = 8, kPieces = 2, kHeldOfGroup = kPiece * kPieces, kApart = 64, kGroup = 128, kGroupLanes = 8;

// The first of the columns that a lane holds; the second piece begins kApart columns later.
__device__ __forceinline__ int column_of(int group, int lane) { return group * kGroup + lane % kGroupLanes * kPiece; }

// RoPE of an interleaved pair of bf16. The products and their sum are rounded separately, as in the reference.
__device__ __forceinline__ uint32_t rotated(uint32_t pair, float cosine, float sine) {
  const float even = __uint_as_float(pair << 16), odd = __uint_as_float(pair & 0xFFFF0000u);
  return pack<__nv_bfloat16>(__fsub_rn(__fmul_rn(even, cosine), __fmul_rn(odd, sine)), __fadd_rn(__fmul_rn(even, sine), __fmul_rn(odd, cosine)));
}

__device__ __forceinline__ void unpack8(float* x, const uint4& v) {
  const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) x[2 * i] = __uint_as_float(words[i] << 16), x[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000u);
}
__device__ __forceinline__ uint4 pack8(const float* x) {
  return {pack<__nv_bfloat16>(x[0], x[1]), pack<__nv_bfloat16>(x[2], x[3]), pack<__nv_bfloat16>(x[4], x[5]), pack<__nv_bfloat16>(x[6], x[7])};
}
// Rounds eight values to bf16, and returns their bits.
__device__ __forceinline__ uint4 round8(float* x) {
  const uint4 bits = pack8(x);
  unpack8(x, bits);
  return bits;
}
// The weights of a norm, and other fp32 parameters: eight neighbours.
__device__ __forceinline__ void load8(float* x, const float* source) {
  const float4 a = reinterpret_cast<const float4*>(source)[0], b = reinterpret_cast<const float4*>(source)[1];
  x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
}
// The weights of a norm for the two pieces of a lane.
__device__ __forceinline__ void load_gain(float* gain, const float* source) { load8(gain, source), load8(gain + kPiece, source + kApart); }

// 1 / sqrt(mean + eps) of a sum of squares, each step rounded.
__device__ __forceinline__ float rms_factor(float squares, int width, float eps) {
  return __frcp_rn(__fsqrt_rn(__fadd_rn(__fdiv_rn(squares, static_cast<float>(width)), eps)));
}

// The scale of a group, of which kLanes neighbouring lanes hold kHeld values each, and the codes of this lane's. The maximum is taken over the
// absolute values' bits, where NaN is the largest. To round a scale up to a power of two, its mantissa is carried into the exponent. If a
// value is infinite or NaN, the scale and all values are NaN.
template <int kLanes, int kHeld>
__device__ __forceinline__ float quantize_lanes(const float (&values)[kHeld], bool ue8m0, uint32_t (&codes)[kHeld / 4]) {
  uint32_t top = 0x38D1B717u;  // 1e-4
#pragma unroll
  for (int i = 0; i < kHeld; ++i) top = max(top, __float_as_uint(values[i]) & 0x7FFFFFFFu);
#pragma unroll
  for (int level = 1; level < kLanes; level *= 2) top = max(top, __shfl_xor_sync(~0u, top, level));
  const float quotient = __fdiv_rn(__uint_as_float(top), 448.0f);
  const float rounded = ue8m0 ? __uint_as_float((__float_as_uint(quotient) + 0x7FFFFFu) & 0xFF800000u) : quotient;
  const float scale = fmaf(quotient, 0.0f, rounded);
  const float inverse = __fdiv_rn(1.0f, scale);  // exact for a power of two, so that multiplying has the bits of dividing
#pragma unroll
  for (int i = 0; i < kHeld / 4; ++i) {
    float x[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) x[j] = ue8m0 ? values[4 * i + j] * inverse : __fdiv_rn(values[4 * i + j], scale);
    const uint32_t low = __nv_cvt_float2_to_fp8x2({x[0], x[1]}, __NV_SATFINITE, __NV_E4M3);
    const uint32_t high = __nv_cvt_float2_to_fp8x2({x[2], x[3]}, __NV_SATFINITE, __NV_E4M3);
    codes[i] = low | high << 16;
  }
  return scale;
}
// The same for the layout above: 8 bytes of codes for each piece.
__device__ __forceinline__ float quantize_group(const float (&values)[kHeldOfGroup], bool ue8m0, uint2 (&codes)[kPieces]) {
  uint32_t words[4];
  const float scale = quantize_lanes<kGroupLanes>(values, ue8m0, words);
  codes[0] = {words[0], words[1]}, codes[1] = {words[2], words[3]};
  return scale;
}

}  // namespace common
