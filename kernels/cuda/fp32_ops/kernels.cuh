// A linear projection with fp32 weights for few tokens, one CTA for each one or two rows of the weight; and LayerNorm of narrow rows, one
// warp for each row.
#pragma once

#include <cuda_bf16.h>

#include "../common/lane_sums.cuh"
#include "../common/pdl.cuh"

namespace fp32_ops {

using namespace common;

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kHeld = 8;  // float4s of each weight row that a thread holds, loaded before pdl_wait if they are static
constexpr int kLinearTokens = 4;              // more bf16 tokens go to the tensor cores (products.cuh)
constexpr int kNormWarps = 4, kNormHeld = 8;  // rows per CTA; elements per lane

__device__ __forceinline__ float4 load4(const float* x) { return *reinterpret_cast<const float4*>(x); }
__device__ __forceinline__ float4 load4(const __nv_bfloat16* x) {
  const uint2 v = *reinterpret_cast<const uint2*>(x);
  return {__uint_as_float(v.x << 16), __uint_as_float(v.x & 0xFFFF0000u), __uint_as_float(v.y << 16),
          __uint_as_float(v.y & 0xFFFF0000u)};
}

struct Linear {
  const void* x;        // [tokens, width]
  const float* weight;  // [rows, width]
  float* out;           // [tokens, rows]
  int64_t stride;       // between rows of x
  int tokens, rows, width;
  float scale;
  bool static_weights;  // the previous kernel has not written the weight
};

inline Linear linear_of(const TensorView& x, const TensorView& weight, const TensorView& out, double scale, bool static_weights) {
  Linear p = {};
  p.x = data<void>(x);
  p.weight = data<float>(weight);
  p.out = data<float>(out);
  p.stride = x.stride(0);
  p.tokens = static_cast<int>(x.size(0));
  p.rows = static_cast<int>(weight.size(0));
  p.width = static_cast<int>(x.size(1));
  p.scale = static_cast<float>(scale);
  p.static_weights = static_weights;
  return p;
}

// A CTA holds kRows rows of the weight in registers...
template <int kRows>
__device__ __forceinline__ void load_rows(const Linear& p, int row, float4 (&held)[kRows][kHeld]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int column = (i * kThreads + threadIdx.x) * 4;
      held[r][i] = column < p.width && row + r < p.rows ? load4(p.weight + int64_t(row + r) * p.width + column) : float4{};
    }
}
// ... and multiplies them with all tokens, kTokens at a time. More than a few bf16 tokens have kernels in products.cuh.
template <class Element, int kTokens, int kRows>
__device__ __forceinline__ void multiply_rows(const Linear& p, int row, const float4 (&held)[kRows][kHeld]) {
  constexpr int kSums = kTokens * kRows;
  __shared__ float sums[2][kWarps][kSums];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int side = 0;
  for (int first = 0; first < p.tokens; first += kTokens, side ^= 1) {
    float total[kSums] = {};
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (i * kThreads * 4 >= p.width) break;  // the same for all threads
      // Reads past the end of a row or past the last token are clamped to valid addresses; their results are not used.
      const int column = min((i * kThreads + static_cast<int>(threadIdx.x)) * 4, p.width - 4);
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        const float4 v = load4(static_cast<const Element*>(p.x) + min(first + t, p.tokens - 1) * p.stride + column);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const float4 w = held[r][i];
          total[t * kRows + r] = fmaf(v.x, w.x, fmaf(v.y, w.y, fmaf(v.z, w.z, fmaf(v.w, w.w, total[t * kRows + r]))));
        }
      }
    }
    const float sum = common::sums_over_lanes(total, lane);
    if (lane % (32 / kSums) == 0) sums[side][warp][lane / (32 / kSums)] = sum;
    __syncthreads();
    if (threadIdx.x < kSums) {
      const int token = first + threadIdx.x / kRows, r = row + threadIdx.x % kRows;
      float whole = 0.0f;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) whole += sums[side][w][threadIdx.x];
      if (token < p.tokens && r < p.rows) p.out[int64_t(token) * p.rows + r] = whole * p.scale;
    }
  }
}
template <class Element, int kTokens, int kRows>
__global__ void __launch_bounds__(kThreads) fp32_linear_kernel(Linear p) {
  float4 held[kRows][kHeld];
  if (!p.static_weights) common::pdl_wait();
  load_rows<kRows>(p, blockIdx.x * kRows, held);
  common::pdl_wait();
  common::pdl_launch_dependents();  // not earlier: ../pdl.py
  multiply_rows<Element, kTokens, kRows>(p, blockIdx.x * kRows, held);
}

struct Norm {
  const void* x;  // [tokens, width]
  const float *weight, *bias;
  void* out;  // [tokens, width]
  int64_t stride;
  int tokens, width;
  float eps;
};

template <class Element>
__global__ void __launch_bounds__(kNormWarps * 32) layer_norm_kernel(Norm p) {
  common::pdl_launch_dependents();
  const int lane = threadIdx.x % 32, token = blockIdx.x * kNormWarps + threadIdx.x / 32;
  common::pdl_wait();
  if (token >= p.tokens) return;
  const Element* x = static_cast<const Element*>(p.x) + token * p.stride;
  float values[kNormHeld], sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kNormHeld; ++i) {
    values[i] = lane + 32 * i < p.width ? static_cast<float>(x[lane + 32 * i]) : 0.0f;
    sum += values[i];
  }
  const float mean = sum_of_lanes(sum) / p.width;
#pragma unroll
  for (int i = 0; i < kNormHeld; ++i)
    if (lane + 32 * i < p.width) squares += (values[i] - mean) * (values[i] - mean);
  const float factor = 1.0f / sqrtf(sum_of_lanes(squares) / p.width + p.eps);
#pragma unroll
  for (int i = 0; i < kNormHeld; ++i) {
    const int column = lane + 32 * i;
    if (column < p.width)
      static_cast<Element*>(p.out)[int64_t(token) * p.width + column] =
          Element((values[i] - mean) * factor * p.weight[column] + p.bias[column]);
  }
}

}  // namespace fp32_ops
