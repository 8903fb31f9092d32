// Split-KV: the kernels that merge partial results.
#pragma once

#include "problem.cuh"
#include "../common/ptx.cuh"

namespace mla {

__device__ __forceinline__ void add(float4& sum, float& total, float weight, float4 v) {
  total += weight;
  sum.x += weight * v.x;
  sum.y += weight * v.y;
  sum.z += weight * v.z;
  sum.w += weight * v.w;
}

// Four stored columns of a merged row; `top` is the largest of its logsumexps.
template <class Element>
__device__ __forceinline__ void store_merged(const Problem& p, int query, int r, int column, float top, float total, float4 sum) {
  const int64_t at = int64_t(query) * p.rows + r;
  const bool empty = top == -INFINITY;
  float factor = empty ? 0.0f : 1.0f / total;
  if (p.sink != nullptr && !empty) factor = 1.0f / (total + exp2f(p.sink[r % p.heads] * 1.4426950408889634f - top));
  uint32_t* out = reinterpret_cast<uint32_t*>(static_cast<Element*>(p.out) + at * kValueWidth + partial_column(column));
  out[0] = pack<Element>(sum.x * factor, sum.y * factor);
  out[4] = pack<Element>(sum.z * factor, sum.w * factor);
  if (column == 0) p.lse[at] = empty ? -INFINITY : (top + log2f(total)) * p.lse_factor;
}

// out and lse of the queries that several parts computed. A warp merges 128 columns of a row, of every kTurns-th split; a CTA has kQuarters of
// a row's four such warps, times kTurns.
template <class Element, int kQuarters, int kTurns, int kAtOnce, int kCtas>
__global__ void __launch_bounds__(32 * kQuarters * kTurns, kCtas) flash_fwd_mla_combine_kernel(const __grid_constant__ Problem p) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  const int64_t at = blockIdx.x / (4 / kQuarters);
  const int quarter = blockIdx.x % (4 / kQuarters) * kQuarters + warp % kQuarters, turn = warp / kQuarters;
  const int column = quarter * 128 + lane * 4;
  const int query = static_cast<int>(at / p.rows), r = static_cast<int>(at - int64_t(query) * p.rows);
  const int first = p.split_offset[query], splits = p.split_offset[query + 1] - first;  // of the plan, which is older than the parts
  asm volatile("griddepcontrol.wait;" ::: "memory");
  if (splits <= 1) return;
  const float* lses = p.partial_lse + int64_t(first) * p.rows + r;
  const float* partial = p.partial_out + (int64_t(first) * p.rows + r) * kValueWidth + column;
  float top = -INFINITY;
  for (int i = lane; i < splits; i += 32) top = fmaxf(top, __ldcg(lses + int64_t(i) * p.rows));
  float total = 0.0f;
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (int begin = turn; begin < splits; begin += kTurns * kAtOnce) {
    float4 v[kAtOnce];
    float lse[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int split = begin + i * kTurns;
      v[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      lse[i] = -INFINITY;
      if (split < splits) {
        v[i] = __ldcg(reinterpret_cast<const float4*>(partial + int64_t(split) * p.rows * kValueWidth));
        lse[i] = __ldcg(lses + int64_t(split) * p.rows);
      }
    }
    if (begin == turn)
      for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      add(sum, total, lse[i] == -INFINITY ? 0.0f : exp2f(lse[i] - top), v[i]);
  }
  if constexpr (kTurns > 1) {
    __shared__ float4 sums[kTurns][32 * kQuarters];
    __shared__ float totals[kTurns];
    const int place = warp % kQuarters * 32 + lane;
    sums[turn][place] = sum;
    if (place == 0) totals[turn] = total;
    __syncthreads();
    if (turn > 0) return;
#pragma unroll
    for (int i = 1; i < kTurns; ++i) {
      const float4 v = sums[i][place];
      total += totals[i];
      sum.x += v.x;
      sum.y += v.y;
      sum.z += v.z;
      sum.w += v.w;
    }
  }
  store_merged<Element>(p, query, r, column, top, total, sum);
}

// out and lse of the queries that several parts of few blocks computed, in little code, since its instructions come cold. CTA (r, query)
// merges a row, in the order of its splits. A lane computes the weight of one of 32 splits at a time. kEqual: all queries have the same
// number of splits, and maxima are merged, too.
template <class Element, bool kEqual = false>
__global__ void __launch_bounds__(128) flash_fwd_mla_combine_row_kernel(const __grid_constant__ Problem p) {
  constexpr int kAtOnce = 8;
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  const int lane = threadIdx.x & 31, column = threadIdx.x * 4, r = blockIdx.x, query = blockIdx.y;
  // A plan is older than the parts.
  const int first = kEqual ? query * p.pieces : p.split_offset[query], splits = kEqual ? p.pieces : p.split_offset[query + 1] - first;
  asm volatile("griddepcontrol.wait;" ::: "memory");
  if (splits <= 1) return;
  const int64_t step = int64_t(p.rows) * kValueWidth;
  const float* lses = p.partial_lse + int64_t(first) * p.rows + r;
  const float* next = p.partial_out + (int64_t(first) * p.rows + r) * kValueWidth + column;
  float top = -INFINITY, total = 0.0f, weight = 0.0f;
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
  for (int split = 0; split < splits; split += kAtOnce) {
    float4 v[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i, next += step) {
      v[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (split + i < splits) v[i] = __ldcg(reinterpret_cast<const float4*>(next));
    }
    if (split % 32 == 0) {
      const float lse = split + lane < splits ? __ldcg(lses + int64_t(split + lane) * p.rows) : -INFINITY;
      if (split == 0) {
        top = lse;
#pragma unroll 1
        for (int i = lane + 32; i < splits; i += 32) top = fmaxf(top, __ldcg(lses + int64_t(i) * p.rows));
#pragma unroll 1
        for (int far = 16; far > 0; far /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, far));
      }
      weight = lse == -INFINITY ? 0.0f : exp2f(lse - top);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) add(sum, total, __shfl_sync(~0u, weight, (split + i) % 32), v[i]);
  }
  store_merged<Element>(p, query, r, column, top, total, sum);
  if constexpr (kEqual) {
    if (threadIdx.x >= 32) return;
    float highest = -INFINITY;
    for (int i = lane; i < splits; i += 32) highest = fmaxf(highest, __ldcg(p.partial_top + int64_t(first + i) * p.rows + r));
    for (int far = 16; far > 0; far /= 2) highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, far));
    if (lane == 0) p.max_logits[int64_t(query) * p.rows + r] = highest * p.scale;
  }
}

}  // namespace mla
