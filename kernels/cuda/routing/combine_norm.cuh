// The sum of the experts' outputs, the residual stream, and the norm of the next layer with its FP8 operand, in one launch for few tokens.
#pragma once

#include "../common/cluster.cuh"
#include "../common/groups.cuh"
#include "kernels.cuh"

namespace routing {

constexpr int kNormThreads = 64, kNormWarps = kNormThreads / 32;      // of a CTA
constexpr int kColumnsOfCta = kNormThreads * common::kHeldOfGroup;    // 1024
constexpr int kMaxNormCluster = 8;

struct CombinedNorm {
  Combination sum;                // its `out` is not used
  const __nv_bfloat16* residual;  // [tokens, width]
  const float* gain;              // [width], the weight of the norm
  __nv_bfloat16 *total, *normed;  // [tokens, width]
  uint8_t* codes;                 // e4m3 [tokens, width]
  float* scales;                  // [tokens, width / 128]
  int64_t residual_stride;
  float eps;
  bool ue8m0;
  bool static_gain;  // the previous kernel has not written it
};

// A cluster of several CTAs takes a token. The sum of squares has the order of the norm for many tokens (tile/quantize.py): 16 columns of a
// thread, the lanes of a warp, the warps of a token.
__global__ void __launch_bounds__(kNormThreads) combine_norm_kernel(CombinedNorm p) {
  using namespace common;
  __shared__ float sums[kMaxNormCluster * kNormWarps];
  __shared__ uint64_t pushed;
  pdl_launch_dependents();
  const int cluster = p.sum.width / kColumnsOfCta, rank = static_cast<int>(cluster_rank());
  const int64_t token = blockIdx.x / cluster;
  const int place = rank * kNormThreads + threadIdx.x, lane = threadIdx.x % 32, column = column_of(place / kGroupLanes, lane);
  if (!p.static_gain) pdl_wait();
  float gain[kHeldOfGroup];
  load8(gain, p.gain + column), load8(gain + kPiece, p.gain + column + kApart);
  if (threadIdx.x == 0) {
    barrier_init(shared_address(&pushed), 1);
    barrier_arrive_expect(shared_address(&pushed), cluster * kNormWarps * 4);
  }
  cluster_sync_barriers();
  pdl_wait();
  uint4 raw[kPieces];
#pragma unroll
  for (int i = 0; i < kPieces; ++i)
    raw[i] = *reinterpret_cast<const uint4*>(p.residual + token * p.residual_stride + column + i * kApart);
  float values[kHeldOfGroup];
  combined<__nv_bfloat16, kPiece, kPieces>(p.sum, token, column, kApart, values);
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    float before[kPiece];
    float* x = values + i * kPiece;
    unpack8(before, raw[i]);
    round8(x);
#pragma unroll
    for (int j = 0; j < kPiece; ++j) x[j] += before[j];
    *reinterpret_cast<uint4*>(p.total + token * p.sum.width + column + i * kApart) = round8(x);
#pragma unroll
    for (int j = 0; j < kPiece; ++j) squares = fmaf(x[j], x[j], squares);
  }
  squares = sum_of_lanes(squares);
  if (lane < cluster) push(sums + rank * kNormWarps + threadIdx.x / 32, squares, shared_address(&pushed), lane);
  barrier_wait(shared_address(&pushed), 0);
  squares = 0.0f;
  for (int w = 0; w < cluster * kNormWarps; ++w) squares += sums[w];
  const float factor = rms_factor(squares, p.sum.width, p.eps);
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    float* x = values + i * kPiece;
#pragma unroll
    for (int j = 0; j < kPiece; ++j) x[j] = x[j] * factor * gain[i * kPiece + j];
    *reinterpret_cast<uint4*>(p.normed + token * p.sum.width + column + i * kApart) = round8(x);
  }
  uint2 codes[kPieces];
  const float scale = quantize_group(values, p.ue8m0, codes);
#pragma unroll
  for (int i = 0; i < kPieces; ++i) *reinterpret_cast<uint2*>(p.codes + token * p.sum.width + column + i * kApart) = codes[i];
  if (lane % kGroupLanes == 0) p.scales[token * (p.sum.width / kGroup) + column / kGroup] = scale;
}

}  // namespace routing
