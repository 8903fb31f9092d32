// Split-KV: the plan of a step, and the kernel that merges partial results.
#pragma once

#include "problem.cuh"
#include "../common/ptx.cuh"

namespace mla {

constexpr int kStaged = 8192;  // block counts that the planner keeps in shared memory

// How many whole parts the rest of a query (`left` blocks) takes, without its last part. `inverse` is 1 / (payload - overhead). Exact up to
// 2^20 blocks.
__device__ __forceinline__ int whole_parts(int left, float inverse) { return static_cast<int>((left - 0.5f) * inverse); }

// How many parts of `payload` the queries fill in order. `overhead` is what starting and ending a query costs, in blocks of keys; a query
// without keys still costs it, because some part must write its empty result. `slots` counts the partial results.
template <class Blocks>
__device__ int parts_needed(Blocks blocks_of, int queries, int overhead, int payload, int& slots) {
  const int step = payload - overhead;
  const float inverse = 1.0f / step;
  int parts = 1, room = payload;
  for (int q = 0; q < queries; ++q) {
    int left = blocks_of(q);
    if (room <= overhead) {
      ++parts;
      room = payload;
    }
    if (room < left + overhead) {
      left -= room - overhead;
      const int whole = whole_parts(left, inverse);
      left -= whole * step;
      parts += 1 + whole;
      slots += 2 + whole;
      room = payload;
    }
    room -= left + overhead;
  }
  return parts;
}

// What a plan costs, in 64ths of the time that a part needs for a block of keys.
struct Costs {
  int overhead;  // starting and ending a query, in blocks
  int slot;      // writing and merging a partial result
  int merge;     // merging at all
};

// Divides the blocks of all queries into parts, so that the longest part and the merging of divided queries cost little. One warp.
//
// Queries of one length are given to parts whole, or are divided equally, unless dividing them anywhere should cost less. Otherwise parts of
// one payload are filled in order: each lane tries another payload, and the cheapest that fits is taken (a part wastes less than
// 2 * overhead + 1 blocks, so one of 32 fits). Then all lanes together repeat the walk and write the plan.
template <Lookup kLookup>
__global__ void plan_kernel(Keys keys, int queries, Costs costs, int part_count, Part* parts, int32_t* split_offset) {
  asm volatile("griddepcontrol.launch_dependents;");
  __shared__ int staged[kStaged];
  const int lane = threadIdx.x, overhead = costs.overhead;
  const auto count = [&](int q) { return (keys.count<kLookup>(q) + kBlock - 1) / kBlock; };
  constexpr int kToTheEnd = 1 << 30;
  int total = 0, least = kToTheEnd, most = 0;
  for (int q = lane; q < queries; q += 32) {
    const int blocks = count(q);
    total += blocks;
    least = min(least, blocks);
    most = max(most, blocks);
    if (q < kStaged) staged[q] = blocks;
  }
  __syncwarp();
  total = __reduce_add_sync(~0u, total);
  least = __reduce_min_sync(~0u, least);
  most = __reduce_max_sync(~0u, most);

  if (least == most && most > 0) {
    const int whole = (queries + part_count - 1) / part_count;  // queries of a part
    // Each lane tries another size: larger pieces mean less merging. For contexts other sizes have not been measured.
    int size = whole > 1 ? most : min((most + part_count / queries - 1) / (part_count / queries) + (kLookup == Lookup::kIndices ? lane : 0), most);
    int pieces = (most + size - 1) / size;  // of a query
    unsigned cost = 64 * (whole > 1 ? whole * (most + overhead) : size + overhead) +
                    (pieces > 1 ? costs.merge + costs.slot * pieces * queries : 0);
    const unsigned best = __reduce_min_sync(~0u, cost << 5 | lane);
    cost = best >> 5;
    size = __shfl_sync(~0u, size, best & 31);
    pieces = __shfl_sync(~0u, pieces, best & 31);
    // Any other plan has as many pieces as queries and cuts.
    const int other = (total + (queries + part_count - 1) * overhead + part_count - 1) / part_count;
    if (cost <= 64u * other + costs.merge + costs.slot * (queries + part_count - 1)) {
      for (int i = lane; i < part_count; i += 32) {
        const int first = pieces > 1 ? i / pieces : i * whole, piece = pieces > 1 ? i % pieces : 0;
        Part part = {queries, 0, queries - 1, 0, 0, 0, 0, 0};
        if (first < queries)
          part = {first, piece * size, min(first + whole, queries) - 1, piece + 1 < pieces ? (piece + 1) * size : kToTheEnd,
                  piece, 0,            0,                                0};
        parts[i] = part;
      }
      for (int q = lane; q <= queries; q += 32) split_offset[q] = q * pieces;
      return;
    }
  }

  const auto blocks_of = [&](int q) { return q < kStaged ? staged[q] : count(q); };
  int payload = max((total + queries * overhead + part_count - 1) / part_count, overhead + 1) + lane;
  int slots = 0;
  const int needed = parts_needed(blocks_of, queries, overhead, payload, slots);
  const unsigned cost = 64u * lane + costs.slot * slots + (slots > 0 ? costs.merge : 0);
  const unsigned best = __reduce_min_sync(~0u, needed <= part_count ? cost << 5 | lane : ~0u);
  payload = __shfl_sync(~0u, payload, best & 31);

  const int step = payload - overhead;
  const float inverse = 1.0f / step;
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
      const int whole = whole_parts(blocks - done, inverse);
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

// The same where most queries have nothing to merge, or some have many more splits than others: a grid that fills the GPU once divides the
// tasks. A task is four rows of a query of few splits, one for each quarter of the CTA, or one row of a query of many,
// of which each quarter takes every fourth split.
constexpr int kFewSplits = 16, kTaskThreads = 512, kCountedQueries = 8;

template <class Element>
__global__ void __launch_bounds__(kTaskThreads, 2) flash_fwd_mla_combine_tasks_kernel(const __grid_constant__ Problem p) {
  __shared__ float4 sums[4][128];
  __shared__ float totals[4];
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  const int lane = threadIdx.x & 31, quarter = threadIdx.x / 128, place = threadIdx.x & 127, column = place * 4;
  // Each warp looks at 256 queries at a time: a lane counts the tasks of eight.
  int from = 0, before = 0, all, mine, tasks[kCountedQueries];
  const auto count = [&] {
    mine = 0;
#pragma unroll
    for (int i = 0; i < kCountedQueries; ++i) {
      const int query = from + lane * kCountedQueries + i;
      const int splits = query < p.queries ? p.split_offset[query + 1] - p.split_offset[query] : 0;
      tasks[i] = splits <= 1 ? 0 : splits <= kFewSplits ? (p.rows + 3) / 4 : p.rows;
      mine += tasks[i];
    }
    int sum = mine;
#pragma unroll
    for (int far = 1; far < 32; far *= 2) {
      const int lower = __shfl_up_sync(~0u, sum, far);
      if (lane >= far) sum += lower;
    }
    all = __shfl_sync(~0u, sum, 31);
    mine = sum - mine;  // of the lanes before
  };
  count();
  asm volatile("griddepcontrol.wait;" ::: "memory");
  for (int task = blockIdx.x;; task += gridDim.x) {
    while (task >= before + all) {
      before += all;
      from += 32 * kCountedQueries;
      if (from >= p.queries) return;
      count();
    }
    int query = from + lane * kCountedQueries, local = task - before - mine;
    const int owner = 31 - __clz(__ballot_sync(~0u, local >= 0));
    bool found = false;
#pragma unroll
    for (int i = 0; i < kCountedQueries; ++i) {
      found = found || local < tasks[i];
      if (!found) {
        local -= tasks[i];
        ++query;
      }
    }
    query = __shfl_sync(~0u, query, owner);
    local = __shfl_sync(~0u, local, owner);
    const int first = p.split_offset[query], splits = p.split_offset[query + 1] - first;
    const bool many = splits > kFewSplits;
    const int r = many ? local : 4 * local + quarter;
    float top, total;
    float4 sum;
    if (r < p.rows) merge_splits<4>(p, first, splits, r, column, many ? quarter : 0, many ? 4 : 1, top, total, sum);
    if (many) {
      sums[quarter][place] = sum;
      if (place == 0) totals[quarter] = total;
      __syncthreads();
      if (quarter == 0) {
#pragma unroll
        for (int i = 1; i < 4; ++i) {
          const float4 v = sums[i][place];
          total += totals[i];
          sum.x += v.x;
          sum.y += v.y;
          sum.z += v.z;
          sum.w += v.w;
        }
        store_merged<Element>(p, query, r, column, top, total, sum);
      }
      __syncthreads();
    } else if (r < p.rows) {
      store_merged<Element>(p, query, r, column, top, total, sum);
    }
  }
}

}  // namespace mla
