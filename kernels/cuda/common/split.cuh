// Split-KV: the plan of a step, and the kernel that merges partial results.
#pragma once

#include "ptx.cuh"
#include "problem.cuh"

namespace mla {

constexpr int kStaged = 8192;  // block counts that the planner keeps in shared memory

// How many parts of `payload` the queries fill in order. `overhead` is what starting and ending a query costs, in blocks of keys; a query
// without keys still costs it, because some part must write its empty result.
template <class Blocks>
__device__ int parts_needed(Blocks blocks_of, int queries, int overhead, int payload) {
  int parts = 1, room = payload;
  for (int q = 0; q < queries; ++q) {
    int left = blocks_of(q);
    if (room <= overhead) {
      ++parts;
      room = payload;
    }
    if (room < left + overhead) {
      left -= room - overhead;
      const int whole = max(0, (left + overhead - payload + payload - overhead - 1) / (payload - overhead));
      left -= whole * (payload - overhead);
      parts += 1 + whole;
      room = payload;
    }
    room -= left + overhead;
  }
  return parts;
}

// Cuts the blocks of all queries into parts of about equal cost. One warp: each lane tries another payload, and the smallest that
// fits is taken (cutting wastes less than 2 * overhead + 1 a part, so one of 32 does); then all lanes write it, the same walk again.
template <Lookup kLookup>
__global__ void plan_kernel(Keys keys, int queries, int overhead, int part_count, Part* parts, int32_t* split_offset) {
  __shared__ int staged[kStaged];
  const int lane = threadIdx.x;
  const auto count = [&](int q) { return (keys.count<kLookup>(q) + kBlock - 1) / kBlock; };
  int total = 0;
  for (int q = lane; q < queries; q += 32) {
    const int blocks = count(q);
    total += blocks + overhead;
    if (q < kStaged) staged[q] = blocks;
  }
  __syncwarp();
  for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(~0u, total, step);
  const auto blocks_of = [&](int q) { return q < kStaged ? staged[q] : count(q); };
  int payload = max((total + part_count - 1) / part_count, overhead + 1) + lane;
  const unsigned fits = __ballot_sync(~0u, parts_needed(blocks_of, queries, overhead, payload) <= part_count);
  payload = __shfl_sync(~0u, payload, __ffs(fits) - 1);

  constexpr int kToTheEnd = 1 << 30;
  const int step = payload - overhead;
  Part open = {0, 0, 0, 0, 0, 0, 0, 0};
  int part = 0, room = payload, splits = 0;
  const auto close = [&](int last_query, int end_block) {
    open.last_query = last_query;
    open.end_block = end_block;
    if (lane == 0) parts[part] = open;
    ++part;
    room = payload;
  };
  if (lane == 0) split_offset[0] = 0;
  for (int q = 0; q < queries; ++q) {
    const int blocks = blocks_of(q);
    int done = 0, split = 0;
    if (room <= overhead) {
      close(q - 1, kToTheEnd);
      open = {q, 0, 0, 0, 0, 0, 0, 0};
    }
    if (room < blocks + overhead) {
      done = room - overhead;
      split = 1;
      close(q, done);
      const int whole = max(0, (blocks - done + overhead - payload + step - 1) / step);
      for (int i = lane; i < whole; i += 32) parts[part + i] = {q, done + i * step, q, done + (i + 1) * step, split + i, 0, 0, 0};
      done += whole * step;
      split += whole;
      part += whole;
      open = {q, done, 0, 0, split, 0, 0, 0};
    }
    room -= blocks - done + overhead;
    splits += split + 1;
    if (lane == 0) split_offset[q + 1] = splits;
  }
  close(queries - 1, kToTheEnd);
  for (int i = part + lane; i < part_count; i += 32) parts[i] = {queries, 0, queries - 1, 0, 0, 0, 0, 0};
}

__device__ __forceinline__ void add(float4& sum, float& total, float weight, float4 v) {
  total += weight;
  sum.x += weight * v.x;
  sum.y += weight * v.y;
  sum.z += weight * v.z;
  sum.w += weight * v.w;
}

// Four columns of a merged row; `top` is the largest of its logsumexps.
template <class Element>
__device__ __forceinline__ void store_merged(const Problem& p, int query, int r, int column, float top, float total, float4 sum) {
  const int64_t at = int64_t(query) * p.rows + r;
  const bool empty = top == -INFINITY;
  float factor = empty ? 0.0f : 1.0f / total;
  if (p.sink != nullptr && !empty) factor = 1.0f / (total + exp2f(p.sink[r % p.heads] * 1.4426950408889634f - top));
  *reinterpret_cast<uint2*>(static_cast<Element*>(p.out) + at * kValueWidth + column) =
      make_uint2(pack<Element>(sum.x * factor, sum.y * factor), pack<Element>(sum.z * factor, sum.w * factor));
  if (column == 0) p.lse[at] = empty ? -INFINITY : (top + log2f(total)) * p.lse_factor;
}

// out and lse of the queries that several parts did: a CTA a row, 128 threads for its columns, times kLanes that take turns at the splits.
constexpr int kLanes = 4;

template <class Element>
__global__ void __launch_bounds__(128 * kLanes) flash_fwd_mla_combine_kernel(const __grid_constant__ Problem p) {
  const int column = (threadIdx.x & 127) * 4, turn = threadIdx.x / 128;
  const int64_t at = blockIdx.x;
  const int query = static_cast<int>(at / p.rows), r = static_cast<int>(at - int64_t(query) * p.rows);
  asm volatile("griddepcontrol.wait;" ::: "memory");
  const int first = p.split_offset[query], splits = p.split_offset[query + 1] - first;
  if (splits <= 1) return;
  const float* lses = p.partial_lse + int64_t(first) * p.rows + r;
  float top = -INFINITY;
  for (int i = threadIdx.x & 31; i < splits; i += 32) top = fmaxf(top, lses[int64_t(i) * p.rows]);
  for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
  const bool empty = top == -INFINITY;
  float total = 0.0f;
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  const float* partial = p.partial_out + (int64_t(first) * p.rows + r) * kValueWidth + column;
#pragma unroll 4
  for (int i = turn; i < splits; i += kLanes) {
    const float weight = empty ? 0.0f : exp2f(lses[int64_t(i) * p.rows] - top);
    add(sum, total, weight, __ldcs(reinterpret_cast<const float4*>(partial + int64_t(i) * p.rows * kValueWidth)));
  }
  __shared__ float4 sums[kLanes][128];
  __shared__ float totals[kLanes];
  sums[turn][threadIdx.x & 127] = sum;
  if (column == 0) totals[turn] = total;
  __syncthreads();
  if (turn > 0) return;
  for (int i = 1; i < kLanes; ++i) {
    const float4 v = sums[i][threadIdx.x];
    total += totals[i];
    sum.x += v.x;
    sum.y += v.y;
    sum.z += v.z;
    sum.w += v.w;
  }
  store_merged<Element>(p, query, r, column, top, total, sum);
}

// The same where a query has few splits, or none, and there are many rows: most have nothing to merge, so few CTAs look, each at 16 rows
// of a query, four at a time.
constexpr int kCombineRows = 16;

template <class Element>
__global__ void __launch_bounds__(512) flash_fwd_mla_combine_rows_kernel(const __grid_constant__ Problem p) {
  const int column = (threadIdx.x & 127) * 4, chunks = (p.rows + kCombineRows - 1) / kCombineRows;
  const int query = static_cast<int>(blockIdx.x) / chunks, chunk = static_cast<int>(blockIdx.x) - query * chunks;
  asm volatile("griddepcontrol.wait;" ::: "memory");
  const int first = p.split_offset[query], splits = p.split_offset[query + 1] - first;
  if (splits <= 1) return;
  const int last = min((chunk + 1) * kCombineRows, p.rows);
  for (int r = chunk * kCombineRows + threadIdx.x / 128; r < last; r += 4) {
    const float* lses = p.partial_lse + int64_t(first) * p.rows + r;
    const float* partial = p.partial_out + (int64_t(first) * p.rows + r) * kValueWidth + column;
    float top = -INFINITY;
    for (int i = 0; i < splits; ++i) top = fmaxf(top, lses[int64_t(i) * p.rows]);
    const bool empty = top == -INFINITY;
    float total = 0.0f;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
    for (int i = 0; i < splits; ++i) {
      const float weight = empty ? 0.0f : exp2f(lses[int64_t(i) * p.rows] - top);
      add(sum, total, weight, __ldcs(reinterpret_cast<const float4*>(partial + int64_t(i) * p.rows * kValueWidth)));
    }
    store_merged<Element>(p, query, r, column, top, total, sum);
  }
}

}  // namespace mla
