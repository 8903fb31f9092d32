// Split-KV: the plan of a step, which divides the keys of all queries into parts.
#pragma once

#include "problem.cuh"
#include "../common/ptx.cuh"

namespace mla {

constexpr int kStaged = 8192;  // block counts that the planner keeps in shared memory

// Returns how many whole parts the rest of a query (`left` blocks) takes, without its last part. `inverse` is 1 / (payload - overhead). Exact up to
// 2^20 blocks.
__device__ __forceinline__ int whole_parts(int left, float inverse) { return static_cast<int>((left - 0.5f) * inverse); }

// Returns how many parts of `payload` the queries fill in order. `overhead` is the cost of starting and ending a query, in blocks of keys; a query
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

// The costs of a plan, in 64ths of the time that a part needs for a block of keys.
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

}  // namespace mla
