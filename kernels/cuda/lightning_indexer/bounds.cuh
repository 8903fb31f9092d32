// What candidates.cuh needs of each query: its heads divided by 2^6 and ordered by weight, the weights of heads and of groups of heads, and
// the error that the bounds must allow for.
//
// Every step is bounded for finite values of any size. A query whose bounds would mean nothing gets NaN as its error: all its keys become
// candidates, and it is computed anew.
#pragma once

#include <cuda_fp8.h>

#include "candidates.cuh"
#include "../select_topk/radix.cuh"

namespace indexer {

constexpr int kPrepareThreads = 256;  // four for each head

// The share of a sum's magnitude that its bounds allow for. 5 * 2^-11: rounding to fp16 of the product, of the head's ratio and of up to
// three sums in the group. The rest covers their products, the group's weight in two fp16 numbers, and what fp32 sums lose here and in
// prefill.cuh.
constexpr float kShare = 5.125f * 0x1p-11f;
// The MMA keeps 13 bits below the first of the largest of the numbers that it adds at once, and truncates the others (DeepSeek-V3 report,
// section 3.3.2).
constexpr float kGrain = 0x1p-13f;

struct Prepare {
  const uint8_t* queries;  // [rows, heads, 128], with strides in bytes
  int64_t query_stride, head_stride;
  const float* weights;
  int64_t weight_stride;
  uint8_t* bound_queries;       // [rows, 64, 128]
  BoundWeights* bound_weights;  // [rows]
  float2* scales;               // [rows], see Candidates
  const float* longest_key;
  int heads;
};

// The squares of 16 e4m3 numbers, added up.
__device__ __forceinline__ float squares_of(uint4 bytes) {
  const uint32_t words[] = {bytes.x, bytes.y, bytes.z, bytes.w};
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const __half2 pair(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(words[i / 2] >> 16 * (i % 2)), __NV_E4M3));
    const float2 value = __half22float2(pair);
    sum += value.x * value.x + value.y * value.y;
  }
  return sum;
}

// Raises *longest, which is zero before, to the length of the longest key, and a little more. NaN if a key has one.
__global__ void __launch_bounds__(256) longest_key_kernel(const uint4* keys, int64_t key_stride, int count, float* longest) {
  float most = 0.0f;
  bool finite = true;
  for (int at = blockIdx.x * 256 + threadIdx.x; at < count * 8; at += gridDim.x * 256) {  // eight threads for each key
    float sum = squares_of(__ldg(keys + at / 8 * key_stride + at % 8));
#pragma unroll
    for (int mask = 1; mask < 8; mask *= 2) sum += __shfl_xor_sync(0xFFu << (threadIdx.x & 24), sum, mask);
    most = fmaxf(most, sum);
    finite = finite && sum < INFINITY;
  }
  const float length = finite ? sqrtf(most) * (1.0f + 0x1p-10f) : NAN;
  const uint32_t bits = __reduce_max_sync(~0u, __float_as_uint(length) & 0x7fffffffu);
  if (threadIdx.x % 32 == 0) atomicMax(reinterpret_cast<unsigned int*>(longest), bits);
}

// One CTA for each query.
__global__ void __launch_bounds__(kPrepareThreads) prepare_kernel(const __grid_constant__ Prepare p) {
  __shared__ float weights[64], sorted[64], errors[64], lengths[64];
  __shared__ int columns[64];
  const int row = blockIdx.x, head = threadIdx.x / 4, quarter = threadIdx.x % 4;
  const float weight = head < p.heads ? __ldg(p.weights + row * p.weight_stride + head) : 0.0f;
  if (quarter == 0) weights[head] = weight;
  uint4 bytes[2] = {};
  if (head < p.heads) {
    const uint4* from = reinterpret_cast<const uint4*>(p.queries + row * p.query_stride + head * p.head_stride) + 2 * quarter;
    bytes[0] = __ldg(from);
    bytes[1] = __ldg(from + 1);
  }
  // Division by 2^6 loses digits of values below 1 alone: `lost` is the sum of their differences, `changed` their number.
  float lost = 0.0f, changed = 0.0f, squares = 0.0f;
  uint32_t* words = reinterpret_cast<uint32_t*>(bytes);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    uint32_t result = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const __half2 value(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(words[i] >> 16 * half), __NV_E4M3));
      const __half2 small = __hmul2(value, __float2half2_rn(0x1p-6f));
      const __nv_fp8x2_storage_t rounded = __nv_cvt_halfraw2_to_fp8x2(small, __NV_SATFINITE, __NV_E4M3);
      const float2 before = __half22float2(value), after = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(rounded, __NV_E4M3)));
      const float first = fabsf(before.x - 64.0f * after.x), second = fabsf(before.y - 64.0f * after.y);
      lost += first + second;
      changed += float(first != 0.0f) + float(second != 0.0f);
      squares += before.x * before.x + before.y * before.y;
      result |= uint32_t(rounded) << 16 * half;
    }
    words[i] = result;
  }
#pragma unroll
  for (int mask = 1; mask < 4; mask *= 2) {
    lost += __shfl_xor_sync(~0u, lost, mask);
    changed += __shfl_xor_sync(~0u, changed, mask);
    squares += __shfl_xor_sync(~0u, squares, mask);
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
  const float size = fabsf(weight);
  const bool usual = size == 0.0f || (size >= 0x1p-60f && size <= 0x1p60f);
  if (quarter == 0) {
    sorted[rank] = weight;
    const float length = sqrtf(squares) * __ldg(p.longest_key);  // no sum of this head is larger
    lengths[rank] = length;
    // A changed product is truncated to another multiple of the grain, and so may be each of the four sums that follow.
    errors[rank] = usual ? size * (lost * 448.0f + (changed > 0.0f ? (changed + 4.0f) * kGrain * length : 0.0f)) : NAN;
  }
  __syncthreads();
  // The largest weight of a group comes first. Groups are neighbours in order, so that one of their ends has it.
  const int group = rank / 4;
  const bool descending = fabsf(sorted[4 * group]) >= fabsf(sorted[4 * group + 3]);
  const int member = descending ? rank % 4 : 3 - rank % 4, column = group + 16 * member;
  const float first = sorted[4 * group + (descending ? 0 : 3)];
  BoundWeights& out = p.bound_weights[row];
  uint4* to = reinterpret_cast<uint4*>(p.bound_queries + (int64_t(row) * 64 + column) * kWidth) + 2 * quarter;
  to[0] = bytes[0];
  to[1] = bytes[1];
  if (quarter == 0) out.ratios[column] = __float2half_rn(first == 0.0f ? 0.0f : weight / first);

  if (threadIdx.x >= 32) return;
  const float own = fmaxf(fabsf(sorted[threadIdx.x]), fabsf(sorted[threadIdx.x + 32]));
  const float largest = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(own)));
  const float power = __uint_as_float((__float_as_uint(largest) >> 23) << 23) * 2.0f;  // above all weights; 0 if they are all zero
  const float inverse = power > 0.0f ? 1.0f / power : 0.0f;
  float error = 0.0f;
  for (int i = threadIdx.x; i < 64; i += 32) {
    const float low = sorted[i & ~3], high = sorted[i | 3];
    error += errors[i];
    // Where signs differ, a group's sum says nothing about its magnitude. Its weights are the smallest of both signs.
    if (low < 0.0f && high > 0.0f) error += 2.0f * kShare * fabsf(sorted[i]) * lengths[i];
    error += fabsf(sorted[i]) * 0x1p-13f + (i % 4 == 0 ? fmaxf(fabsf(low), fabsf(high)) : 0.0f);  // subnormal fp16 numbers
  }
#pragma unroll
  for (int mask = 1; mask < 32; mask *= 2) error += __shfl_xor_sync(~0u, error, mask);
  for (int i = threadIdx.x; i < 64; i += 32) {
    const int which = i % 16, side = i / 16;
    const float low = sorted[4 * which], high = sorted[4 * which + 3];
    const float whole = (fabsf(low) >= fabsf(high) ? low : high) * inverse;
    const float share = low < 0.0f && high > 0.0f ? 0.0f : side < 2 ? kShare : -kShare;
    const float bound = fmaf(share, fabsf(whole), whole);
    const __half rounded = __float2half_rn(bound);
    out.sides[side][which] = side % 2 ? __float2half_rn(bound - __half2float(rounded)) : rounded;
  }
  if (threadIdx.x == 0) p.scales[row] = make_float2(power * 64.0f, (error + 64.0f * power) * (1.0f + 0x1p-10f));
}

}  // namespace indexer
