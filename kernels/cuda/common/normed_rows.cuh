// The residual stream plus a sublayer's output, its RMSNorm, and the norm as an FP8 operand: the end of the kernels that sum the output.
// A thread has the 16 columns of a lane in groups.cuh. The sum of squares has the order of the norm for many tokens (tile/quantize.py):
// columns of a thread, lanes, warps.
#pragma once

#include "groups.cuh"
#include "launch.cuh"

namespace common {

struct NormedRows {
  const __nv_bfloat16* residual;  // [tokens, width]
  const float* gain;              // [width], the weight of the norm
  __nv_bfloat16 *total, *normed;  // [tokens, width]
  uint8_t* codes;                 // e4m3 [tokens, width]
  float* scales;                  // [tokens, width / 128]
  int64_t residual_stride;
  int width;
  float eps;
  bool ue8m0;
  bool static_gain;  // the previous kernel has not written it

  __device__ __forceinline__ void load_residual(uint4 (&held)[kPieces], int64_t token, int column) const {
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
      held[i] = *reinterpret_cast<const uint4*>(residual + token * residual_stride + column + i * kApart);
  }
  // values: the output, as bf16 numbers. Adds the stream, writes the total, and returns the sum of this thread's squares.
  __device__ __forceinline__ float add(float (&values)[kHeldOfGroup], const uint4 (&stream)[kPieces], int64_t token, int column) const {
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      float before[kPiece];
      float* x = values + i * kPiece;
      unpack8(before, stream[i]);
#pragma unroll
      for (int j = 0; j < kPiece; ++j) x[j] += before[j];
      *reinterpret_cast<uint4*>(total + token * width + column + i * kApart) = round8(x);
#pragma unroll
      for (int j = 0; j < kPiece; ++j) squares = fmaf(x[j], x[j], squares);
    }
    return squares;
  }
  // squares: of the whole row. Writes the norm, its codes and their scales.
  __device__ __forceinline__ void norm(float (&values)[kHeldOfGroup], const float (&held_gain)[kHeldOfGroup], float squares, int64_t token,
                                       int column, int lane) const {
    const float factor = rms_factor(squares, width, eps);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      float* x = values + i * kPiece;
#pragma unroll
      for (int j = 0; j < kPiece; ++j) x[j] = x[j] * factor * held_gain[i * kPiece + j];
      *reinterpret_cast<uint4*>(normed + token * width + column + i * kApart) = round8(x);
    }
    uint2 pieces[kPieces];
    const float scale = quantize_group(values, ue8m0, pieces);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) *reinterpret_cast<uint2*>(codes + token * width + column + i * kApart) = pieces[i];
    if (lane % kGroupLanes == 0) scales[token * (width / kGroup) + column / kGroup] = scale;
  }
};

// residual bf16 [T, D], weight fp32 [D] -> total, normed bf16 [T, D], codes e4m3 (as bytes) [T, D], scales fp32 [T, D / 128].
inline NormedRows normed_rows_of(const TensorView& residual, const TensorView& weight, const TensorView& total, const TensorView& normed,
                                 const TensorView& codes, const TensorView& scales, double eps, bool ue8m0, bool static_gain) {
  NormedRows p = {};
  p.residual = data<__nv_bfloat16>(residual);
  p.residual_stride = residual.stride(0);
  p.gain = data<float>(weight);
  p.total = data<__nv_bfloat16>(total);
  p.normed = data<__nv_bfloat16>(normed);
  p.codes = data<uint8_t>(codes);
  p.scales = data<float>(scales);
  p.width = static_cast<int>(total.size(1));
  p.eps = static_cast<float>(eps);
  p.ue8m0 = ue8m0;
  p.static_gain = static_gain;
  return p;
}

}  // namespace common
