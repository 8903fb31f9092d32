// What candidates.cuh needs of each query: its heads ordered by weight, and the weights of heads and of groups of heads.
//
// The bounds are bounds for any finite products and weights of ordinary size. A query with other weights gets NaN as its error: all its keys
// become candidates, and with weights that are NaN perhaps those of the query that shares its MMA. The keys of all queries do if a key's scale
// is negative or NaN, because an upper bound times that is none.
#pragma once

#include "candidates.cuh"
#include "../select_topk/radix.cuh"

namespace indexer {

constexpr int kPrepareThreads = 256;  // four for each head

// The share of a sum's magnitude that its bound allows for. 9 * 2^-9: rounding to bf16 of the product, of the head's ratio and of up to seven
// sums in the group. The rest covers their products, the group's weight in two bf16 numbers, and what fp32 sums lose here and in prefill.cuh.
constexpr float kShare = 9.25f * 0x1p-9f;
// In a group with both signs, the weights of the other sign than the group's are reduced (or enlarged, if the group's is negative) by this
// share: the group's own of the same size, what the sum may lose on their side, and the product of both.
constexpr float kOtherShare = 2.125f * kShare;

struct Prepare {
  const uint8_t* queries;  // [rows, heads, 128], with strides in bytes
  int64_t query_stride, head_stride;
  const float* weights;
  int64_t weight_stride;
  uint8_t* bound_queries;       // [rows, 64, 128]: heads in the order of columns
  BoundWeights* bound_weights;  // [rows]
  float2* scales;               // [rows], see Candidates
  const int32_t* refused;  // see check_scales_kernel
  int heads;
};

// Raises *refused, which is zero before, if a scale is negative or NaN.
__global__ void __launch_bounds__(256) check_scales_kernel(const float* scales, int count, int32_t* refused) {
  bool found = false;
  for (int at = blockIdx.x * 256 + threadIdx.x; at < count; at += gridDim.x * 256) found = found || !(__ldg(scales + at) >= 0.0f);
  if (found) *refused = 1;
}

// One CTA for each query.
__global__ void __launch_bounds__(kPrepareThreads) prepare_kernel(const __grid_constant__ Prepare p) {
  __shared__ float weights[64], sorted[64];
  const int row = blockIdx.x, head = threadIdx.x / 4, quarter = threadIdx.x % 4;
  const float weight = head < p.heads ? __ldg(p.weights + row * p.weight_stride + head) : 0.0f;
  if (quarter == 0) weights[head] = weight;
  uint4 bytes[2] = {};
  if (head < p.heads) {
    const uint4* from = reinterpret_cast<const uint4*>(p.queries + row * p.query_stride + head * p.head_stride) + 2 * quarter;
    bytes[0] = __ldg(from);
    bytes[1] = __ldg(from + 1);
  }
  __syncthreads();
  int rank = 0;  // of the head by weight, then by number; any bits have an order
  const uint32_t mine = topk::key_of(weight);
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int other = 16 * quarter + i;
    const uint32_t key = topk::key_of(weights[other]);
    rank += key < mine || (key == mine && other < head);
  }
  rank += __shfl_xor_sync(~0u, rank, 1);
  rank += __shfl_xor_sync(~0u, rank, 2);
  if (quarter == 0) sorted[rank] = weight;
  __syncthreads();
  // The largest weight of a group comes first. Groups are neighbours in order, so that one of their ends has it.
  const int group = rank / kMembers, lowest = group * kMembers, highest = lowest + kMembers - 1;
  const bool descending = fabsf(sorted[lowest]) >= fabsf(sorted[highest]);
  const int member = descending ? rank - lowest : highest - rank, column = group + kHeadGroups * member;
  const float first = sorted[descending ? lowest : highest];
  BoundWeights& out = p.bound_weights[row];
  uint4* to = reinterpret_cast<uint4*>(p.bound_queries + (int64_t(row) * 64 + column) * kWidth) + 2 * quarter;
  to[0] = bytes[0];
  to[1] = bytes[1];
  if (quarter == 0) {
    const float ratio = first == 0.0f ? 0.0f : weight / first;
    out.ratios[column] = __float2bfloat16_rn(ratio < 0.0f ? ratio * (first > 0.0f ? 1.0f - kOtherShare : 1.0f + kOtherShare) : ratio);
  }

  if (threadIdx.x >= 32) return;
  const float own = fmaxf(fabsf(sorted[threadIdx.x]), fabsf(sorted[threadIdx.x + 32]));
  const float largest = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(own)));
  const float power = __uint_as_float((__float_as_uint(largest) >> 23) << 23) * 2.0f;  // above all weights; 0 if they are all zero
  const float inverse = power > 0.0f ? 1.0f / power : 0.0f;
  bool usual = __ldg(p.refused) == 0;
  for (int i = threadIdx.x; i < 64; i += 32) {
    const float size = fabsf(sorted[i]);
    usual = usual && (size == 0.0f || (size >= 0x1p-60f && size <= 0x1p60f));
  }
  usual = __all_sync(~0u, usual);
  if (threadIdx.x < kHeadGroups) {
    const float low = sorted[kMembers * threadIdx.x], high = sorted[kMembers * threadIdx.x + kMembers - 1];
    const float whole = (fabsf(low) >= fabsf(high) ? low : high) * inverse, bound = fmaf(kShare, fabsf(whole), whole);
    const __nv_bfloat16 rounded = __float2bfloat16_rn(bound);
    out.upper[0][threadIdx.x] = rounded;
    out.upper[1][threadIdx.x] = __float2bfloat16_rn(bound - __bfloat162float(rounded));
  }
  if (threadIdx.x == 0) p.scales[row] = make_float2(power, usual ? power * 0x1p-20f : NAN);
}

}  // namespace indexer
