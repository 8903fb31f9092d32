// FP8 sparse attention of few queries: outputs from scores, over all keys of a query in order.
#pragma once

#include "producer.cuh"

namespace mla {

// Waits for each chunk in turn, and calls add(chunk, its first block, its blocks).
template <class Tile, bool kWithValues, class Add>
__device__ __forceinline__ void for_each_chunk(int blocks, int chunks, const Add& add) {
  constexpr int kThreads = Tile::kThreads - Tile::kConverters, kValueThreads = Tile::kConverters + Tile::kMathThreads;
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    if (kWithValues) named_sync(kValuesFull + (chunk & 1), kValueThreads);
    named_sync(kProbabilitiesFull + (chunk & 1), kThreads);
    add(chunk & 1, chunk * Tile::kBlocks, min(Tile::kBlocks, blocks - chunk * Tile::kBlocks));
    if (chunk + 2 < chunks) {
      if (kWithValues) named_arrive(kValuesFree + (chunk & 1), kValueThreads);
      named_arrive(kProbabilitiesFree + (chunk & 1), kThreads);
    }
  }
}

// The sums of the probabilities of a row, by four threads.
template <class Tile>
__device__ __forceinline__ void add_probabilities(ValueMemory<Tile>& s, int thread, int blocks, int chunks) {
  const int row = thread / 4;
  float sums[2] = {0.0f, 0.0f};  // the core adds even and odd blocks apart
  for_each_chunk<Tile, false>(blocks, chunks, [&](int stage, int first_block, int here) {
#pragma unroll
    for (int block = 0; block < Tile::kBlocks; ++block) {
      if (block >= here) break;
      const float factor = s.factor[row][first_block + block];
      sums[0] = __fmul_rn(sums[0], factor), sums[1] = __fmul_rn(sums[1], factor);
      sums[block & 1] = __fadd_rn(sums[block & 1], s.added[stage][block][thread]);
    }
  });
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    sums[i] = __fadd_rn(sums[i], __shfl_xor_sync(~0u, sums[i], 1));
    sums[i] = __fadd_rn(sums[i], __shfl_xor_sync(~0u, sums[i], 2));
  }
  if ((thread & 3) == 0) s.total[row] = __fadd_rn(sums[0], sums[1]);
  named_arrive(kTotals, Tile::kMathThreads + Tile::kSumThreads);
}

// The outputs of 16 rows and 16 columns, by a warp.
template <class Tile>
__device__ __forceinline__ void multiply_values(const Problem& p, ValueMemory<Tile>& s, int thread, int query, int blocks, int chunks,
                                                int first_row, int first_column) {
  const int lane = thread & 31, g = lane / 4, t = lane & 3, matrix = lane / 8, line = lane & 7;
  const int warp = thread / 32, tile = warp / Tile::kColumnWarps, column = warp % Tile::kColumnWarps * 16;
  float o[2][4] = {};
  for_each_chunk<Tile, true>(blocks, chunks, [&](int stage, int first_block, int here) {
    const uint32_t a_from = shared_address(s.probabilities[stage]) + (tile * 16 + (matrix & 1) * 8 + line) * Tile::kProbabilityPitch +
                            (matrix >> 1) * 16;
    const uint32_t b_from = shared_address(s.values[stage]) + ((matrix & 1) * 8 + line) * Tile::kValuePitch + column * 2 + (matrix >> 1) * 16;
    const float* factors = &s.factor[tile * 16 + g][first_block];
    constexpr int kLower = 8 * (kMostBlocks + 1);  // eight rows further
    constexpr int kAhead = 2;                      // steps of 16 keys that operands are loaded before their MMAs
    uint32_t a[4][4], b[4][4];
    const auto load_step = [&](int block, int step) {
      load_matrices(a[step], a_from + block * 128 + step * 32);
      load_transposed(b[step], b_from + (block * 64 + step * 16) * Tile::kValuePitch);
    };
#pragma unroll
    for (int step = 0; step < kAhead; ++step) load_step(0, step);
    float upper = factors[0], lower = factors[kLower];
#pragma unroll 1
    for (int block = 0; block < here; ++block) {
      const int next = min(block + 1, here - 1);
      const float next_upper = factors[next], next_lower = factors[kLower + next];
#pragma unroll
      for (int part = 0; part < 2; ++part) o[part][0] *= upper, o[part][1] *= upper, o[part][2] *= lower, o[part][3] *= lower;
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        load_step(step + kAhead < 4 ? block : next, (step + kAhead) % 4);
#pragma unroll
        for (int part = 0; part < 2; ++part) multiply_add(o[part], a[step], b[step][2 * part], b[step][2 * part + 1]);
      }
      upper = next_upper, lower = next_lower;
    }
  });
  named_sync(kTotals, Tile::kMathThreads + Tile::kSumThreads);
  const int64_t row_of = int64_t(query) * p.rows;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int own = tile * 16 + g + 8 * half, r = first_row + own;
    if (r >= p.rows) continue;
    const float total = s.total[own], reference = s.last[own];
    const bool empty = s.top[own] == -INFINITY;
    float factor = empty ? 0.0f : 1.0f / total;
    if (p.sink != nullptr && !empty) factor = 1.0f / (total + exp2f(p.sink[r] * 1.4426950408889634f - reference));
#pragma unroll
    for (int part = 0; part < 2; ++part)
      reinterpret_cast<uint32_t*>(static_cast<__nv_bfloat16*>(p.out) + (row_of + r) * kValueWidth + first_column + column + 8 * part)[t] =
          pack<__nv_bfloat16>(o[part][2 * half] * factor, o[part][2 * half + 1] * factor);
    if (first_column + column == 0 && t == 0) p.lse[row_of + r] = (empty ? -INFINITY : reference + log2f(total)) * p.lse_factor;
  }
}

// Twenty warps of 64 registers fit beside a CTA of the scores, and beside one of the kernel that follows. So the kernel is compiled as if for
// 1024 threads; tiles of 32 rows, whose CTAs leave no room for others, take the registers that they need.
template <class Tile>
__global__ void __launch_bounds__(Tile::kTileRows == 16 ? 1024 : Tile::kThreads, 1)
    few_queries_values_kernel(const __grid_constant__ Problem p, const __grid_constant__ Scratch scratch) {
  extern __shared__ __align__(1024) uint8_t memory[];
  ValueMemory<Tile>& s = *reinterpret_cast<ValueMemory<Tile>*>(memory);
  const int first_column = blockIdx.x * Tile::kColumns, first_row = blockIdx.y * Tile::kTileRows, query = blockIdx.z;
  const int count = p.keys.count<Lookup::kIndices>(query), blocks = (count + kBlock - 1) / kBlock;
  // A list without keys has an empty chunk, whose barrier orders the writing of a row's maximum before its reading.
  const int chunks = max(1, (blocks + Tile::kBlocks - 1) / Tile::kBlocks);
  int thread = threadIdx.x;
  if (thread < Tile::kConverters) {
    // Lengths, indices and the cache are older than the scores, whose kernel lets this one start after it waited for them.
    Converter<Tile>{p, s, thread, query, count, blocks, first_column}.run(chunks);
    return;
  }
  asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;" ::: "memory");
  if ((thread -= Tile::kConverters) < Tile::kScorers) {
    Scorer<Tile>{p, scratch, s, thread, query, blocks, first_row}.run(chunks);
  } else if ((thread -= Tile::kScorers) < Tile::kMathThreads) {
    multiply_values(p, s, thread, query, blocks, chunks, first_row, first_column);
  } else {
    add_probabilities(s, thread - Tile::kMathThreads, blocks, chunks);
  }
}

}  // namespace mla
