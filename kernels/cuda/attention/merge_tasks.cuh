// Split-KV: the merge of partial results where most queries have nothing to merge, or some have many more splits than others.
//
// A grid that fills the GPU once divides the tasks. A task is eight rows of a query of few splits, two for each quarter of the CTA, or one row
// of a query of many splits, of which each quarter takes every fourth split.
#pragma once

#include "merge.cuh"

namespace mla {

constexpr int kFewSplits = 16, kCountedQueries = 256;
constexpr int kQuarters = 4, kTaskThreads = kQuarters * 128;
constexpr int kRowsAtOnce = 2, kTaskRows = kQuarters * kRowsAtOnce;  // of a quarter, of a task
static_assert(kRowsAtOnce * kFewSplits == 32, "a lane computes the weight of a split of a row");

// Sums what this warp's lanes hold of a row: four stored columns of every `step`-th split from `begin` on. `top` becomes the largest
// logsumexp of all splits.
template <int kAtOnce>
__device__ __forceinline__ void merge_splits(const Problem& p, int first, int splits, int r, int column, int begin, int step, float& top,
                                             float& total, float4& sum) {
  const int lane = threadIdx.x & 31;
  const float* lses = p.partial_lse + int64_t(first) * p.rows + r;
  const float* partial = p.partial_out + (int64_t(first) * p.rows + r) * kValueWidth + column;
  top = -INFINITY;
  for (int i = lane; i < splits; i += 32) top = fmaxf(top, __ldcg(lses + int64_t(i) * p.rows));
  bool whole = false;  // `top` is that of all lanes
  total = 0.0f;
  sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (int at = begin; at < splits; at += step * kAtOnce) {
    float4 v[kAtOnce];
    float lse[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int split = at + i * step;
      v[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      lse[i] = -INFINITY;
      if (split < splits) {
        v[i] = __ldcg(reinterpret_cast<const float4*>(partial + int64_t(split) * p.rows * kValueWidth));
        lse[i] = __ldcg(lses + int64_t(split) * p.rows);
      }
    }
    if (!whole)
      for (int far = 16; far > 0; far /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, far));
    whole = true;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      add(sum, total, lse[i] == -INFINITY ? 0.0f : exp2f(lse[i] - top), v[i]);
  }
}

// Merges rows r, r + kQuarters, ... of a query of few splits, one split after the other. A lane computes the weight of one split of one row;
// the loads of all rows are in flight together.
template <class Element>
__device__ __forceinline__ void merge_few_splits(const Problem& p, int query, int first, int splits, int r, int column) {
  constexpr int kAtOnce = 4;  // splits
  static_assert(kFewSplits % kAtOnce == 0, "lanes without a split have weight 0");
  const int lane = threadIdx.x & 31, split_of_lane = lane % kFewSplits;
  const int64_t step = int64_t(p.rows) * kValueWidth;
  const float* next = p.partial_out + (int64_t(first) * p.rows + r) * kValueWidth + column;
  float top = -INFINITY, total[kRowsAtOnce];
  if (split_of_lane < splits)
    top = __ldcg(p.partial_lse + int64_t(first + split_of_lane) * p.rows + min(r + lane / kFewSplits * kQuarters, p.rows - 1));
  float weight = top;  // its logsumexp, until the largest one is known
  float4 sum[kRowsAtOnce];
#pragma unroll
  for (int n = 0; n < kRowsAtOnce; ++n) {
    total[n] = 0.0f;
    sum[n] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
#pragma unroll 1
  for (int split = 0; split < splits; split += kAtOnce, next += kAtOnce * step) {
    float4 v[kRowsAtOnce][kAtOnce];
#pragma unroll
    for (int n = 0; n < kRowsAtOnce; ++n)
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        v[n][i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (split + i < splits && r + n * kQuarters < p.rows)
          v[n][i] = __ldcg(reinterpret_cast<const float4*>(next + i * step + n * kQuarters * kValueWidth));
      }
    if (split == 0) {
#pragma unroll
      for (int far = kFewSplits / 2; far > 0; far /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, far));
      weight = weight == -INFINITY ? 0.0f : exp2f(weight - top);
    }
#pragma unroll
    for (int n = 0; n < kRowsAtOnce; ++n)
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        add(sum[n], total[n], __shfl_sync(~0u, weight, n * kFewSplits + split + i), v[n][i]);
  }
#pragma unroll
  for (int n = 0; n < kRowsAtOnce; ++n)
    if (r + n * kQuarters < p.rows)
      store_merged<Element>(p, query, r + n * kQuarters, column, __shfl_sync(~0u, top, n * kFewSplits), total[n], sum[n]);
}

// How many tasks come before each of kCountedQueries queries from `from` on, and before the one after them. By one warp.
__device__ __forceinline__ void count_tasks(const Problem& p, int from, int (&starts)[kCountedQueries + 1]) {
  constexpr int kEach = kCountedQueries / 32;
  const int lane = threadIdx.x & 31;
  int tasks[kEach], sum = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int query = from + lane * kEach + i;
    const int splits = query < p.queries ? p.split_offset[query + 1] - p.split_offset[query] : 0;
    tasks[i] = splits <= 1 ? 0 : splits <= kFewSplits ? (p.rows + kTaskRows - 1) / kTaskRows : p.rows;
    sum += tasks[i];
  }
  int end = sum;
#pragma unroll
  for (int far = 1; far < 32; far *= 2) {
    const int lower = __shfl_up_sync(~0u, end, far);
    if (lane >= far) end += lower;
  }
  int start = end - sum;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    starts[lane * kEach + i] = start;
    start += tasks[i];
  }
  if (lane == 31) starts[kCountedQueries] = end;
}

// The counted query that `task` is of: the last one whose tasks start at or before it.
__device__ __forceinline__ int owner_of(const int (&starts)[kCountedQueries + 1], int task) {
  constexpr int kEach = kCountedQueries / 32;
  const int lane = threadIdx.x & 31;
  const int place = (31 - __clz(__ballot_sync(~0u, starts[lane * kEach] <= task))) * kEach;
  return place + 31 - __clz(__ballot_sync(~0u, lane < kEach && starts[place + lane % kEach] <= task));
}

template <class Element>
__global__ void __launch_bounds__(kTaskThreads, 2) flash_fwd_mla_combine_tasks_kernel(const __grid_constant__ Problem p) {
  __shared__ float4 sums[kQuarters][128];
  __shared__ float totals[kQuarters];
  __shared__ int starts[kCountedQueries + 1];
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  const int quarter = threadIdx.x / 128, place = threadIdx.x & 127, column = place * 4;
  int from = 0;
  if (threadIdx.x < 32) count_tasks(p, from, starts);
  __syncthreads();
  asm volatile("griddepcontrol.wait;" ::: "memory");
  for (int task = blockIdx.x;; task += gridDim.x) {
    while (task >= starts[kCountedQueries]) {
      task -= starts[kCountedQueries];
      from += kCountedQueries;
      if (from >= p.queries) return;
      __syncthreads();  // all have read the counts
      if (threadIdx.x < 32) count_tasks(p, from, starts);
      __syncthreads();
    }
    const int owner = owner_of(starts, task), query = from + owner, local = task - starts[owner];
    const int first = p.split_offset[query], splits = p.split_offset[query + 1] - first;
    if (splits > kFewSplits) {
      float top, total;
      float4 sum;
      merge_splits<4>(p, first, splits, local, column, quarter, kQuarters, top, total, sum);
      sums[quarter][place] = sum;
      if (place == 0) totals[quarter] = total;
      __syncthreads();
      if (quarter == 0) {
#pragma unroll
        for (int i = 1; i < kQuarters; ++i) {
          const float4 v = sums[i][place];
          total += totals[i];
          sum.x += v.x;
          sum.y += v.y;
          sum.z += v.z;
          sum.w += v.w;
        }
        store_merged<Element>(p, query, local, column, top, total, sum);
      }
      __syncthreads();
    } else if (kTaskRows * local + quarter < p.rows) {
      merge_few_splits<Element>(p, query, first, splits, kTaskRows * local + quarter, column);
    }
  }
}

}  // namespace mla
