// The sum of the experts' outputs, the residual stream, and the norm of the next layer with its FP8 operand, in one launch for few tokens.
#pragma once

#include "../common/cluster.cuh"
#include "../common/normed_rows.cuh"
#include "kernels.cuh"

namespace routing {

constexpr int kNormThreads = 64, kNormWarps = kNormThreads / 32;      // of a CTA
constexpr int kColumnsOfCta = kNormThreads * common::kHeldOfGroup;    // 1024
constexpr int kMaxNormCluster = 8;

struct CombinedNorm {
  Combination sum;  // its `out` is not used
  common::NormedRows rows;
};

// A cluster of several CTAs takes a token.
__global__ void __launch_bounds__(kNormThreads) combine_norm_kernel(CombinedNorm p) {
  using namespace common;
  __shared__ float sums[kMaxNormCluster * kNormWarps];
  __shared__ uint64_t pushed;
  pdl_launch_dependents();
  const int cluster = p.sum.width / kColumnsOfCta, rank = static_cast<int>(cluster_rank());
  const int64_t token = blockIdx.x / cluster;
  const int place = rank * kNormThreads + threadIdx.x, lane = threadIdx.x % 32, column = column_of(place / kGroupLanes, lane);
  if (!p.rows.static_gain) pdl_wait();
  float gain[kHeldOfGroup];
  p.rows.load_gain(gain, column);
  if (threadIdx.x == 0) {
    barrier_init(shared_address(&pushed), 1);
    barrier_arrive_expect(shared_address(&pushed), cluster * kNormWarps * 4);
  }
  cluster_sync_barriers();
  pdl_wait();
  uint4 stream[kPieces];
  p.rows.load_residual(stream, token, column);
  float values[kHeldOfGroup];
  combined<__nv_bfloat16, kPiece, kPieces>(p.sum, token, column, kApart, values);
#pragma unroll
  for (int i = 0; i < kPieces; ++i) round8(values + i * kPiece);
  float squares = sum_of_lanes(p.rows.add(values, stream, token, column));
  if (lane < cluster) push(sums + rank * kNormWarps + threadIdx.x / 32, squares, shared_address(&pushed), lane);
  barrier_wait(shared_address(&pushed), 0);
  squares = 0.0f;
  for (int w = 0; w < cluster * kNormWarps; ++w) squares += sums[w];
  p.rows.norm(values, gain, squares, token, column, lane);
}

}  // namespace routing
