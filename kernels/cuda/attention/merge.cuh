// Split-KV: the kernels that merge partial results.
#pragma once

#include "../common/lane_sums.cuh"
#include "../common/ptx.cuh"
#include "problem.cuh"

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

// out and lse of the queries that several parts of few blocks computed, in little code, since its instructions are not in a cache. CTA (r, query)
// merges a row, in the order of its splits. A lane computes the weight of one of 32 splits at a time. kEqual: all queries have the same
// number of splits, and maxima are merged, too.
template <class Element, bool kEqual = false>
__global__ void __launch_bounds__(128) flash_fwd_mla_combine_kernel_row(const __grid_constant__ Problem p) {
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

// ---- The merge of partial results where most queries have nothing to merge, or some have many more splits than others.
//
// A grid that fills the GPU once divides the tasks. A task is eight rows of a query of few splits, two for each quarter of the CTA, or one row
// of a query of many splits, of which each quarter takes every fourth split.

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

// Counts the tasks before each of kCountedQueries queries from `from` on, and before the one after them. By one warp.
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
  const int end = sum_through(sum, lane);
  int start = end - sum;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    starts[lane * kEach + i] = start;
    start += tasks[i];
  }
  if (lane == 31) starts[kCountedQueries] = end;
}

// The counted query of `task`: the last one whose tasks start at or before it.
__device__ __forceinline__ int owner_of(const int (&starts)[kCountedQueries + 1], int task) {
  constexpr int kEach = kCountedQueries / 32;
  const int lane = threadIdx.x & 31;
  const int place = (31 - __clz(__ballot_sync(~0u, starts[lane * kEach] <= task))) * kEach;
  return place + 31 - __clz(__ballot_sync(~0u, lane < kEach && starts[place + lane % kEach] <= task));
}

template <class Element>
__global__ void __launch_bounds__(kTaskThreads, 2) flash_fwd_mla_combine_kernel_tasks(const __grid_constant__ Problem p) {
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
